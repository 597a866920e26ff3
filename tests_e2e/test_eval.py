"""`osmosis-rollout eval` when things go wrong, and when a server is there already."""

import json
import os
import pty
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from osmosis_ai.rollout.testing import ScriptedPolicy, error_reply

PROJECT = Path(__file__).parent / "projects" / "moods.py"
APP = f"{PROJECT}:app"

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def policy() -> Generator[ScriptedPolicy]:
    """A policy that is always right."""
    with ScriptedPolicy(respond=lambda request: "4") as policy:
        yield policy


def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait for a condition of another process."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # One that has ended stays a process until its parent asks for it.
    stat = Path(f"/proc/{pid}/stat")
    return not (stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z")


def outcomes(run: Any) -> dict[int, str]:
    """Return the status by row; every row must be there once."""
    rows = Counter(result["row"] for result in run.results)
    assert set(rows.values()) == {1}
    counts = Counter(result["status"] for result in run.results)
    assert {name: run.metrics[name] for name in counts} == counts
    assert run.metrics["total"] == len(rows)
    return {result["row"]: result["status"] for result in run.results}


def test_b31_one_failure_never_aborts_the_batch(
    run_eval: Any, dataset: Callable[..., Path], policy: ScriptedPolicy
) -> None:
    """20 rows of which one raises, one leaves, one is cancelled, one never answers."""
    odd = ["raise", "exit", "cancel", "hang", "grade badly"]
    data = dataset(*({"do": mood} for mood in odd), *({} for _ in range(15)))
    run = run_eval(data, APP, "--chat-url", policy.url, "--agent-timeout", "2")
    assert run.status == 1
    ended = outcomes(run)
    assert [ended[row] for row in range(5)] == [
        "failure",
        "failure",
        "cancelled",
        "failure",
        "failure",
    ]
    assert {ended[row] for row in range(5, 20)} == {"success"}
    assert (run.metrics["graded"], run.metrics["passed"], run.metrics["pass_rate"]) == (15, 15, 1)
    assert "all attempts 15/15 (100.0 %), 4 failure, 1 cancelled" in run.stdout
    errors = {result["row"]: result["err_message"] for result in run.results}
    assert errors[0] == "the search index is gone"
    assert "leaving" in errors[1]
    assert "the search index is gone" in run.stderr
    # An infrastructure failure is never a reward of 0.
    assert {result["reward"] for result in run.results} == {1.0, None}


def test_b15_a_policy_that_is_down_is_a_failure_of_every_row(
    run_eval: Any, dataset: Callable[..., Path]
) -> None:
    """No row gets a reward, and the category says who failed."""
    with ScriptedPolicy(respond=lambda request: error_reply(500)) as policy:
        run = run_eval(dataset({}, {}, {}), APP, "--chat-url", policy.url)
    assert run.status == 1
    assert set(outcomes(run).values()) == {"failure"}
    assert run.metrics["failures_by_category"] == {"http_error": 3}
    assert (run.metrics["graded"], run.metrics["pass_rate"]) == (0, None)


def test_the_server_is_killed_in_the_middle(
    run_eval: Any, dataset: Callable[..., Path], policy: ScriptedPolicy
) -> None:
    """Every row still ends in exactly one outcome, and the server's last words are shown."""
    data = dataset({}, {"do": "hang"}, {"do": "kill"}, *({} for _ in range(20)))
    run = run_eval(data, APP, "--chat-url", policy.url, "--concurrency", "2")
    assert run.status == 1
    ended = outcomes(run)
    assert (ended[0], ended[1], ended[2], ended[22]) == (
        "success",
        "failure",
        "failure",
        "skipped",
    )
    assert run.metrics["stopped"] == "the server process ended by SIGKILL"
    assert run.metrics["failures_by_origin"] == {"infrastructure": 2}
    assert {result["reward"] for result in run.results} == {1.0, None}
    assert "about to be killed" in run.stderr


def test_counts_that_do_not_add_up_are_loud(run_eval: Any, dataset: Callable[..., Path]) -> None:
    """A dataset that loses rows while it is run leaves no numbers behind."""
    # Longer than what is read ahead.
    data = dataset(*({"long": "x" * 200_000} for _ in range(20)))
    kept = 3 * (data.stat().st_size + 1) // 20

    def respond(request: Any) -> str:
        os.truncate(data, kept)
        return "4"

    with ScriptedPolicy(respond=respond) as policy:
        run = run_eval(data, APP, "--chat-url", policy.url, "--max-in-flight", "1")
    assert run.status == 1
    assert "3 of 20 rollouts were accounted for: the counts do not add up" in run.stderr
    assert not (run.output / "metrics.json").exists()


def interrupted(
    run_eval: Any, data: Path, policy: ScriptedPolicy, *signals: signal.Signals
) -> tuple[Any, int]:
    """Start an evaluation, and send it the signals once two rows hang and one has ended."""
    process = run_eval.start(data, APP, "--chat-url", policy.url, "--max-in-flight", "2")
    results, log = run_eval.output / "results.jsonl", run_eval.output / "server.log"
    until(lambda: results.exists() and results.stat().st_size > 0)
    until(lambda: log.read_text().count("about to hang") == 2)
    server = int(log.read_text().split("Started server process [")[1].split("]")[0])
    assert is_running(server)
    for number in signals:
        process.send_signal(number)
    return run_eval.finish(process), server


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_no_server_behind(
    run_eval: Any, dataset: Callable[..., Path], policy: ScriptedPolicy, number: signal.Signals
) -> None:
    """Running rows are cancelled, the others skipped, the numbers written, the server ended."""
    data = dataset({}, {"do": "hang"}, {"do": "hang"}, {"do": "hang"}, {})
    run, server = interrupted(run_eval, data, policy, number)
    assert run.status == 1
    ended = outcomes(run)
    assert (ended[0], ended[1], ended[2]) == ("success", "cancelled", "cancelled")
    assert (ended[3], ended[4]) == ("skipped", "skipped")
    assert "the run ended early: interrupted" in run.stderr
    assert not is_running(server)


def test_an_interrupt_while_the_server_starts(
    run_eval: Any, dataset: Callable[..., Path], policy: ScriptedPolicy, tmp_path: Path
) -> None:
    """One is enough, even though the app never comes up."""
    started = tmp_path / "started"
    source = f"import pathlib, time; pathlib.Path({str(started)!r}).touch(); time.sleep(600)"
    (tmp_path / "slow.py").write_text(source)
    process = run_eval.start(dataset({}, {}), "slow.py:app", "--chat-url", policy.url)
    until(started.exists)
    process.send_signal(signal.SIGINT)
    run = run_eval.finish(process)
    assert run.status == 1
    assert set(outcomes(run).values()) == {"skipped"}


def test_kill_9_leaves_no_server_behind(
    run_eval: Any, dataset: Callable[..., Path], policy: ScriptedPolicy
) -> None:
    """The server notices that its parent is gone; what was acknowledged is in the file."""
    data = dataset({}, {"do": "hang"}, {"do": "hang"})
    run, server = interrupted(run_eval, data, policy, signal.SIGKILL)
    [line] = (run.output / "results.jsonl").read_text().splitlines()
    assert json.loads(line)["outcome"]["status"] == "success"
    until(lambda: not is_running(server))


def test_ctrl_c_on_a_terminal(
    run_eval: Any, dataset: Callable[..., Path], policy: ScriptedPolicy, tmp_path: Path
) -> None:
    """There is a bar and a table; the key reaches the command alone, which ends the server."""
    data = dataset({}, {"do": "hang"}, {"do": "hang"}, {})
    line = run_eval.line(data, APP, "--chat-url", policy.url, "--max-in-flight", "2")
    screen = bytearray()

    def read(terminal: int) -> bytes:
        screen.extend(shown := os.read(terminal, 65536))
        if b"1/4" in screen and b"\x03" not in pressed:
            os.write(terminal, b"\x03")
            pressed.append(b"\x03")
        return shown

    pressed: list[bytes] = []
    status = os.waitstatus_to_exitcode(pty.spawn(line, read))
    assert status == 1
    text = screen.decode()
    assert "rollouts" in text
    assert "1/1 (100.0 %)" in text
    assert "cancelled" in text
    log = (run_eval.output / "server.log").read_text()
    assert not is_running(int(log.split("Started server process [")[1].split("]")[0]))


def test_a_full_disk_is_loud(
    run_eval: Any, dataset: Callable[..., Path], policy: ScriptedPolicy, tmp_path: Path
) -> None:
    """Outcomes that cannot be written end the run, with status 1 and no numbers."""
    with running_server(tmp_path, "moods:app") as url:
        data = dataset({"long": "x" * 20_000}, {})
        line = run_eval.line(data, "--url", url, "--chat-url", policy.url)
        # The shell's own way to make writes fail, here beyond 8 KiB.
        done = subprocess.run(
            ["sh", "-c", 'ulimit -f 16; exec "$@"', "sh", *line], capture_output=True, text=True
        )
    assert done.returncode == 1
    assert "cannot be written: File too large" in done.stderr
    assert not run_eval.output.joinpath("metrics.json").exists()


@contextmanager
def running_server(folder: Path, app: str) -> Generator[str]:
    """Serve an app as a user does, on a port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "uvicorn", app, f"--app-dir={PROJECT.parent}"]
    process = subprocess.Popen(
        [*command, f"--port={port}", "--log-level=warning"],
        env=os.environ | {"_OSMOSIS_ROLLOUT_ARTIFACT_ROOT": str(folder / "artifacts")},
    )

    def listening() -> bool:
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", port)) == 0

    try:
        until(listening)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


def test_a_server_that_runs_already(
    run_eval: Any, dataset: Callable[..., Path], policy: ScriptedPolicy, tmp_path: Path
) -> None:
    """Keys come from the environment and appear nowhere; the server goes on afterwards."""
    keys = {"OSMOSIS_ROLLOUT_SERVER_KEY": "server-key", "OSMOSIS_API_KEY": "policy-key"}
    data = dataset({}, {"do": "raise"})
    with running_server(tmp_path, "moods:guarded") as url:
        refused = run_eval(data, "--url", url, "--chat-url", policy.url)
        assert refused.status == 2
        assert "401" in refused.stderr
        run = run_eval(data, "--url", url, "--chat-url", policy.url, **keys)
        assert run.status == 1
        assert outcomes(run) == {0: "success", 1: "failure"}
        assert not (run.output / "rollouts").exists()
        again = run_eval(data, "--url", url, "--chat-url", policy.url, **keys)
        assert again.status == 1
        assert "resumed: 2 of 2" in again.stderr
    assert {request.headers["authorization"] for request in policy.requests} == {
        "Bearer policy-key"
    }
    written = "".join(path.read_text() for path in run.output.iterdir())
    assert "-key" not in run.stdout + run.stderr + written + refused.stderr


def test_attempts_that_are_alike_give_pass_at_k(
    run_eval: Any, dataset: Callable[..., Path]
) -> None:
    """Two of four attempts pass, so pass@1 is 1/2 and pass@2 is 5/6."""
    answers = iter(["4", "5", "5", "4"])
    with ScriptedPolicy(respond=lambda request: next(answers)) as policy:
        run = run_eval(dataset({}), APP, "--chat-url", policy.url, "--attempts", "4")
    assert run.status == 0, run.stderr
    assert run.metrics["pass_at_k"] == {
        "1": pytest.approx(1 / 2),
        "2": pytest.approx(5 / 6),
        "3": 1.0,
        "4": 1.0,
    }
    assert "pass@1 0.500 [0.500, 0.500], pass@2 0.833 [0.833, 0.833], " in run.stdout


def test_the_pass_threshold_decides(
    run_eval: Any, dataset: Callable[..., Path], policy: ScriptedPolicy
) -> None:
    """A reward below it is a success that did not pass."""
    run = run_eval(dataset({}), APP, "--chat-url", policy.url, "--pass-threshold", "1.5")
    assert run.status == 0
    assert (run.results[0]["reward"], run.results[0]["passed"]) == (1.0, False)


REMEDY = "name what create_rollout_server returned"


@pytest.mark.parametrize(
    ("source", "app", "words"),
    [
        ("raise RuntimeError('no database')", "broken.py:app", "no database"),
        ("app = 5", "broken.py:other", f"broken has no other: {REMEDY}"),
        ("app = 5", "broken.py:app", f"broken:app is no app but of type int: {REMEDY}"),
        ("def app(): ...", "broken.py:app", f"is no app but of type function: {REMEDY}"),
        ("app = 5", "broken.py", f"app in broken.py is no app but of type int: {REMEDY}"),
        ("async def app(scope, receive, send): ...", "broken:app", "GET /health with 500 (is that"),
        ("import os; os._exit(7)", "broken:app", "with status 7"),
        ("", "gone.py:app", "no such file"),
        ("", "broken.py", "with status 0"),
        ("", "broken:", "no entrypoint"),
    ],
)
def test_an_app_that_does_not_come_up_is_bad_input(
    run_eval: Any,
    dataset: Callable[..., Path],
    policy: ScriptedPolicy,
    tmp_path: Path,
    source: str,
    app: str,
    words: str,
) -> None:
    """Its own last words are shown, with the log that has all of them, and nothing runs."""
    (tmp_path / "broken.py").write_text(source)
    run = run_eval(dataset({}), app, "--chat-url", policy.url)
    assert run.status == 2
    assert words in run.stderr
    log = run.output / "server.log"
    assert not log.exists() or f"{log} " in run.stderr
    assert policy.requests == []


def test_a_run_that_never_began_starts_again_once_its_app_is_mended(
    run_eval: Any, dataset: Callable[..., Path], policy: ScriptedPolicy, tmp_path: Path
) -> None:
    """Other code is no other input of a run without results; old words are not shown again."""
    source = tmp_path / "main.py"
    source.write_text("raise RuntimeError('no database')")
    command = (dataset({}), "main.py:app", "--chat-url", policy.url)
    assert "no database" in run_eval(*command).stderr
    source.write_text("import os; os._exit(7)")
    again = run_eval(*command)
    assert "with status 7" in again.stderr
    assert "no database" not in again.stderr
    source.write_text(PROJECT.read_text())
    assert run_eval(*command).status == 0
