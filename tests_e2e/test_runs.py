"""Runs that are resumed, refused, retried, interrupted and killed; and stored runs."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import httpx
import pytest

from osmosis_ai.rollout.testing import Gate, Pause, ScriptedPolicy, error_reply, reply

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
        time.sleep(0.005)


def acknowledged(run: Path) -> dict[tuple[int, int], dict[str, Any]]:
    """Return the outcomes in a journal by row and attempt; half a line at its end is none."""
    journal = run / "results.jsonl"
    lines = journal.read_bytes().split(b"\n")[:-1] if journal.exists() else []
    outcomes = [json.loads(line)["outcome"] for line in lines]
    return {(outcome["row"], outcome["attempt"]): outcome for outcome in outcomes}


def numbered(folder: Path, rows: int) -> Path:
    """Write a dataset whose rows can be told apart."""
    path = folder / "numbered.jsonl"
    lines = [json.dumps({"user_prompt": f"question {row}", "label": "4"}) for row in range(rows)]
    path.write_text("\n".join(lines))
    return path


def asked(policy: ScriptedPolicy) -> list[int]:
    """Return the rows that the policy was asked about, in the order of its requests."""
    return [int(request.messages[0]["content"].split()[1]) for request in policy.requests]


def test_kill_9_at_random_points_loses_nothing_and_repeats_nothing(
    run_eval: Any, tmp_path: Path
) -> None:
    """What was acknowledged before a kill is there in the end, and was never run again."""
    chance = random.Random(7)
    data, rows = numbered(tmp_path, 60), 60
    with ScriptedPolicy(respond=lambda request: reply("4").insert(0, Pause(0.04))) as policy:
        command = (data, APP, "--chat-url", policy.url, "--max-in-flight", "4")
        kept: dict[tuple[int, int], dict[str, Any]] = {}
        requests, done = 0, set[int]()
        for _ in range(6):
            process = run_eval.start(*command)
            goal = len(kept) + chance.randint(0, 8)
            until(lambda goal=goal: len(acknowledged(run_eval.output)) >= goal)
            time.sleep(chance.random() * 0.05)
            process.kill()
            process.communicate()
            now = acknowledged(run_eval.output)
            assert {place: now[place] for place in kept} == kept
            kept = now
            requests = len(policy.requests)
            done = {row for row, _ in kept}
            # As a process that was lost in the middle of a write leaves it.
            with (run_eval.output / "results.jsonl").open("ab") as journal:
                journal.write(b'{"outcome": {"row": 5')
        run = run_eval(*command)
        assert run.status == 0, run.stderr
        assert not done & set(asked(policy)[requests:])
    results = {(result["row"], result["attempt"]): result for result in run.results}
    assert {place: results[place] for place in kept} == kept
    assert [result["row"] for result in run.results] == list(range(rows))
    assert (run.metrics["total"], run.metrics["success"], run.metrics["passed"]) == (60, 60, 60)
    assert f"resumed: {len(kept)} of 60" in run.stderr


def test_an_interrupted_run_goes_on_under_its_name(
    run_eval: Any, dataset: Callable[..., Path], policy: ScriptedPolicy, tmp_path: Path
) -> None:
    """What the interrupt cancelled or skipped runs; what had ended stays as it is."""
    switch = tmp_path / "go"
    source = PROJECT.read_text().replace(
        "await asyncio.Event().wait()",
        f"await asyncio.sleep(0 if os.path.exists({str(switch)!r}) else 600)",
    )
    (tmp_path / "main.py").write_text(source)
    data = dataset({}, {"do": "hang"}, {"do": "hang"}, {})
    command = (data, "main.py:app", "--chat-url", policy.url, "--max-in-flight", "2")
    process = run_eval.start(*command)
    until(lambda: len(acknowledged(run_eval.output)) == 1)
    until(lambda: (run_eval.output / "server.log").read_text().count("about to hang") == 2)
    process.send_signal(signal.SIGINT)
    first = run_eval.finish(process)
    assert [result["status"] for result in first.results] == [
        "success",
        "cancelled",
        "cancelled",
        "skipped",
    ]
    assert "interrupt again to leave at once" in first.stderr
    switch.touch()
    second = run_eval(*command)
    assert second.status == 0, second.stderr
    assert second.results[0] == first.results[0]
    assert {result["status"] for result in second.results} == {"success"}


def test_a_second_interrupt_leaves_at_once(
    run_eval: Any, dataset: Callable[..., Path], policy: ScriptedPolicy, tmp_path: Path
) -> None:
    """Even while a server will not end; what was acknowledged is kept."""
    source = PROJECT.read_text().replace(
        "await asyncio.Event().wait()", "await asyncio.to_thread(__import__('time').sleep, 60)"
    )
    (tmp_path / "main.py").write_text(source)
    data = dataset({}, {"do": "hang"})
    process = run_eval.start(data, "main.py:app", "--chat-url", policy.url)
    until(lambda: len(acknowledged(run_eval.output)) == 1)
    process.send_signal(signal.SIGINT)
    for line in process.stderr:
        if "interrupt again" in line:
            break
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 128 + signal.SIGINT
    process.communicate()
    assert not (run_eval.output / "metrics.json").exists()
    assert len(acknowledged(run_eval.output)) == 1


def test_a_run_is_known_by_its_name(
    dataset: Callable[..., Path], policy: ScriptedPolicy, tmp_path: Path
) -> None:
    """The same command goes on with it, the other commands find it, and no name leads elsewhere."""
    command = ("eval", dataset({}), APP, "--chat-url", policy.url, "--name")
    for words in ("1/1 done", "resumed: 1 of 1"):
        done = run_command(tmp_path, *command, "first")
        assert done.returncode == 0, done.stderr
        assert words in done.stderr
    assert len(policy.requests) == 1
    assert (tmp_path / "osmosis-runs" / "first" / "results.jsonl").is_file()
    assert "row 0, attempt 1" in run_command(tmp_path, "show", "0").stdout
    assert "report.html" in run_command(tmp_path, "report", "first").stdout
    for arguments in (["../first"], ["first", "--output", "other"]):
        refused = run_command(tmp_path, *command, *arguments)
        assert refused.returncode == 2
        assert "name" in refused.stderr


def test_two_processes_never_write_one_run(
    run_eval: Any, dataset: Callable[..., Path], policy: ScriptedPolicy
) -> None:
    """The second one is refused; so is one that would set the run aside."""
    data = dataset({}, {"do": "hang"})
    process = run_eval.start(data, APP, "--chat-url", policy.url)
    until(lambda: len(acknowledged(run_eval.output)) == 1)
    for more in ([], ["--fresh"]):
        second = run_eval(data, APP, "--chat-url", policy.url, *more)
        assert second.status == 2
        assert "another process is at work on this run" in second.stderr
    process.send_signal(signal.SIGINT)
    assert run_eval.finish(process).status == 1


OTHER_INPUTS = {
    "attempts (was 1, is 2)": ["--attempts", "2"],
    "pass threshold (was 1.0, is 0.5)": ["--pass-threshold", "0.5"],
    "agent timeout (was None, is 60.0)": ["--agent-timeout", "60"],
    "rows (was all, is 0)": ["--rows", "0"],
    "policy (chat_url)": ["--chat-url", "http://127.0.0.1:9/v1"],
}


def test_a_run_with_other_inputs_is_not_resumed(
    run_eval: Any, dataset: Callable[..., Path], policy: ScriptedPolicy, tmp_path: Path
) -> None:
    """The reason is told, and nothing runs; without the change it is resumed."""
    (tmp_path / "main.py").write_text(PROJECT.read_text())
    command = [dataset({}), "main.py:app", "--chat-url", policy.url]
    assert run_eval(*command).status == 0
    for words, change in OTHER_INPUTS.items():
        refused = run_eval(*command, *change)
        assert refused.status == 2
        assert words in refused.stderr
    assert run_eval(*command).status == 0
    assert len(policy.requests) == 1


def test_changed_data_and_code_are_named_and_fresh_starts_anew(
    run_eval: Any, dataset: Callable[..., Path], policy: ScriptedPolicy, tmp_path: Path
) -> None:
    """The old run is set aside, not lost."""
    (tmp_path / "main.py").write_text(PROJECT.read_text())
    command = ["main.py:app", "--chat-url", policy.url]
    assert run_eval(dataset({}), *command).status == 0
    (tmp_path / "main.py").write_text(PROJECT.read_text() + "\n# changed\n")
    refused = run_eval(dataset({}, {}), *command)
    assert refused.status == 2
    assert "the content of the dataset; the content of the code" in refused.stderr
    again = run_eval(dataset({}, {}), *command, "--fresh")
    assert again.status == 0
    assert (len(again.results), len(policy.requests)) == (2, 3)
    assert len(acknowledged(tmp_path / "run.1")) == 1


def test_failures_stay_until_they_are_to_be_retried(
    run_eval: Any, dataset: Callable[..., Path]
) -> None:
    """A success is never run again, and the newest outcome is the one that counts."""
    answers = iter(["4", error_reply(500), "4"])
    with ScriptedPolicy(respond=lambda request: next(answers)) as policy:
        command = (dataset({}, {}), APP, "--chat-url", policy.url, "--max-in-flight", "1")
        first = run_eval(*command)
        assert [result["status"] for result in first.results] == ["success", "failure"]
        assert first.metrics["failures_by_origin"] == {"policy_endpoint": 1}
        requests = len(policy.requests)
        assert run_eval(*command).status == 1
        assert len(policy.requests) == requests
        retried = run_eval(*command, "--retry-failed")
    assert retried.status == 0, retried.stderr
    assert retried.results[0] == first.results[0]
    assert (retried.metrics["total"], retried.metrics["passed"]) == (2, 2)


def test_rows_and_limit_choose_what_is_run(
    run_eval: Any, tmp_path: Path, policy: ScriptedPolicy
) -> None:
    """Rows are counted from 0, and what is wrong with others does not matter."""
    data = numbered(tmp_path, 30)
    data.write_text(data.read_text() + "\n<oops>\n")
    run = run_eval(data, APP, "--chat-url", policy.url, "--rows", "20-22,3,7", "--limit", "4")
    assert run.status == 0, run.stderr
    assert [result["row"] for result in run.results] == [3, 7, 20, 21]
    assert sorted(asked(policy)) == [3, 7, 20, 21]


@pytest.mark.parametrize(
    ("rows", "words"), [("3,30", "row 30"), ("31", "there is no row 31"), ("x", "selects no rows")]
)
def test_rows_that_cannot_be_run(
    run_eval: Any, tmp_path: Path, policy: ScriptedPolicy, rows: str, words: str
) -> None:
    """A bad row, one that is not there, and nonsense."""
    data = numbered(tmp_path, 30)
    data.write_text(data.read_text() + "\n<oops>\n")
    run = run_eval(data, APP, "--chat-url", policy.url, "--rows", rows)
    assert run.status == 2
    assert words in run.stderr


def test_no_more_in_flight_than_the_server_runs(run_eval: Any, tmp_path: Path) -> None:
    """Its health names the limit, and nothing waits in its line at the cost of its budget."""
    source = PROJECT.read_text().replace(
        "LocalBackend(workflow=Moody,",
        "LocalBackend(workflow=Moody, workflow_config=AgentWorkflowConfig("
        "name='moody', concurrency=ConcurrencyConfig(max_concurrent=2)), ",
    )
    imports = "from osmosis_ai.rollout import AgentWorkflowConfig, ConcurrencyConfig\n"
    telling = "import os\nprint('port', os.environ['_OSMOSIS_ROLLOUT_PORT'], flush=True)\n"
    (tmp_path / "main.py").write_text(imports + telling + source)
    gate = Gate()
    with ScriptedPolicy(respond=lambda request: reply("4").insert(0, gate)) as policy:
        process = run_eval.start(numbered(tmp_path, 6), "main.py:app", "--chat-url", policy.url)
        policy.wait_for_requests(2, timeout=60)
        log = (run_eval.output / "server.log").read_text()
        port = re.search("port ([0-9]+)", log)
        assert port, log
        # Whatever were to wait in line has had the time to come.
        time.sleep(0.5)
        health = httpx.get(f"http://127.0.0.1:{port[1]}/health", trust_env=False).json()
        gate.open()
        run = run_eval.finish(process)
    assert health["concurrency"] == {"max_concurrent": 2, "queued": 0, "running": 2}
    assert run.status == 0, run.stderr
    assert run.metrics["passed"] == 6


def test_a_script_that_serves_by_itself(
    run_eval: Any, dataset: Callable[..., Path], policy: ScriptedPolicy, tmp_path: Path
) -> None:
    """As existing projects do: it reads its port from the environment."""
    script = PROJECT.read_text() + (
        "\nif __name__ == '__main__':\n"
        "    import uvicorn\n"
        "    uvicorn.run(app, host='127.0.0.1', port=int(os.environ['_OSMOSIS_ROLLOUT_PORT']))\n"
    )
    (tmp_path / "main.py").write_text(script)
    run = run_eval(dataset({}, {}), "main.py", "--chat-url", policy.url)
    assert run.status == 0, run.stderr
    assert len(list((run.output / "rollouts").glob("*/trajectory.json"))) == 2


def project_with_environment(folder: Path, *, packages: bool) -> Path:
    """Make a project with a `.venv`, which sees this environment's packages or none."""
    venv.create(folder / ".venv", with_pip=False, symlinks=True)
    if packages:
        [site] = (folder / ".venv").glob("lib/python*/site-packages")
        paths = [path for path in sys.path if path.endswith(("site-packages", "src"))]
        (site / "here.pth").write_text(
            "\n".join(f"import site; site.addsitedir({path!r})" for path in paths)
        )
    (folder / "pyproject.toml").touch()
    source = folder / "rollouts" / "main.py"
    source.parent.mkdir()
    source.write_text(f"import sys\nprint('prefix', sys.prefix)\n{PROJECT.read_text()}")
    return source


def test_a_project_runs_in_its_own_environment(
    run_eval: Any, dataset: Callable[..., Path], policy: ScriptedPolicy, tmp_path: Path
) -> None:
    """The `.venv` beside its pyproject.toml is found from a folder below, and --python wins."""
    source = project_with_environment(tmp_path, packages=True)
    run = run_eval(dataset({}), f"{source}:app", "--chat-url", policy.url)
    assert run.status == 0, run.stderr
    assert f"prefix {tmp_path / '.venv'}" in (run.output / "server.log").read_text()
    python = ("--python", sys.executable)
    fresh = run_eval(dataset({}), f"{source}:app", "--chat-url", policy.url, "--fresh", *python)
    assert f"prefix {sys.prefix}" in (fresh.output / "server.log").read_text()


def test_an_environment_without_a_server_is_named_with_its_command(
    run_eval: Any, dataset: Callable[..., Path], policy: ScriptedPolicy, tmp_path: Path
) -> None:
    """The exact line for that environment."""
    source = project_with_environment(tmp_path, packages=False)
    run = run_eval(dataset({}), f"{source}:app", "--chat-url", policy.url)
    assert run.status == 2
    assert f"{tmp_path / '.venv'}/bin/python -m pip install osmosis-rollout-server" in run.stderr


def test_a_toml_file_of_options(
    run_eval: Any, dataset: Callable[..., Path], policy: ScriptedPolicy, tmp_path: Path
) -> None:
    """Paths are relative to the file, flags win, and the environment reaches the server."""
    source = PROJECT.read_text().replace('print("about', 'print(os.environ["GREETING"], "about')
    source = source.replace("os.kill(os.getpid(), signal.SIGKILL)", "pass")
    (tmp_path / "main.py").write_text(source)
    dataset({"do": "kill"}, {})
    config = tmp_path / "eval.toml"
    config.write_text(
        'dataset = "data.jsonl"\nentrypoint = "main.py:app"\nattempts = 3\n'
        'max-in-flight = 1\nchat-url = "http://127.0.0.1:9/v1"\n[env]\nGREETING = "hello"\n'
    )
    run = run_eval("--config", config, "--attempts", "2", "--chat-url", policy.url)
    assert run.status == 0, run.stderr
    assert len(run.results) == 4
    assert "hello about to be killed" in (run.output / "server.log").read_text()


def test_the_files_of_existing_users(
    run_eval: Any, dataset: Callable[..., Path], policy: ScriptedPolicy, tmp_path: Path
) -> None:
    """The script is found by its rollout's name; what has no effect is told."""
    script = tmp_path / "rollouts" / "moody" / "main.py"
    script.parent.mkdir(parents=True)
    script.write_text(PROJECT.read_text())
    config = tmp_path / "configs" / "eval" / "moody.toml"
    config.parent.mkdir(parents=True)
    config.write_text(
        '[experiment]\nrollout = "moody"\nentrypoint = "main.py"\nmodel_path = "some/model"\n'
        'dataset = "on-the-platform"\ncommit_sha = "0123abc"\n'
        "[evaluation]\nlimit = 1\nn = 2\npass_threshold = 0.5\nagent_workflow_timeout_s = 450\n"
        '[secrets]\nrequired = ["SEARCH_KEY"]\n'
    )
    command = (dataset({}, {}), "--config", config, "--chat-url", policy.url)
    missing = run_eval(*command)
    assert missing.status == 2
    assert "the environment lacks a secret: SEARCH_KEY" in missing.stderr
    run = run_eval(*command, SEARCH_KEY="s3cret")
    assert run.status == 0, run.stderr
    assert [(result["row"], result["attempt"]) for result in run.results] == [(0, 1), (0, 2)]
    for name in (
        "dataset is no file",
        "commit_sha has no effect",
        "the model that it names has no effect",
    ):
        assert name in run.stderr
    written = "".join(path.read_text() for path in run.output.glob("*.json*"))
    assert "s3cret" not in written


def run_command(folder: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run any command of `osmosis-rollout`."""
    command = [sys.executable, "-m", "osmosis_ai.rollout.eval", *map(str, arguments)]
    return subprocess.run(command, cwd=folder, env=os.environ, capture_output=True, text=True)


def test_json_for_machines(
    run_eval: Any, dataset: Callable[..., Path], policy: ScriptedPolicy
) -> None:
    """One document on stdout, the same numbers as in metrics.json."""
    run = run_eval(dataset({}, {"do": "raise"}), APP, "--chat-url", policy.url, "--json")
    assert run.status == 1
    assert json.loads(run.stdout) == run.metrics
    assert run.metrics["failures_by_origin"] == {"workflow": 1}


def test_a_changed_grader_over_stored_samples(
    run_eval: Any, dataset: Callable[..., Path], tmp_path: Path
) -> None:
    """Old against new, with the files that the workflow wrote, and without any inference."""
    source = PROJECT.read_text().replace(
        "return [*ctx.prompt",
        "(ctx.artifacts_dir / 'note').write_text('seen')\n        return [*ctx.prompt",
    )
    (tmp_path / "main.py").write_text(source)
    data = dataset({}, {"do": "grade badly"}, {"do": "raise"}, {})
    answers = iter(["4", "4", "5"])
    with ScriptedPolicy(respond=lambda request: next(answers)) as policy:
        run = run_eval(data, "main.py:app", "--chat-url", policy.url, "--max-in-flight", "1")
    assert [result["passed"] for result in run.results] == [True, None, None, False]
    assert [result["origin"] for result in run.results] == [None, "grader", "workflow", None]
    changed = source.replace('== "grade badly"', '== "no longer"').replace(
        "answer == ctx.label",
        "answer == '5' and (ctx.artifacts_dir / 'note').read_text() == 'seen'",
    )
    (tmp_path / "main.py").write_text(changed)
    done = run_command(tmp_path, "regrade", "run", "--name", "new")
    assert done.returncode == 0, done.stderr
    assert "B is better on 1: rows 3" in done.stdout
    assert "B is worse on 1: rows 0" in done.stdout
    index = (tmp_path / "osmosis-runs" / "new" / "index.jsonl").read_text().splitlines()
    outcomes = {result["row"]: result["passed"] for result in map(json.loads, index)}
    assert outcomes == {0: False, 1: False, 3: True}
    compared = run_command(tmp_path, "compare", "run", "new", "--json")
    numbers = json.loads(compared.stdout)
    assert (numbers["better"], numbers["worse"], numbers["unpaired"]) == ([3], [0], 1)
    assert numbers["pass_rate"]["more_than_noise"] is False


HOSTILE = "<script>alert(1)</script> \x1b[31mred"


def test_show_export_and_report(
    run_eval: Any, dataset: Callable[..., Path], tmp_path: Path
) -> None:
    """A transcript without what steers terminals, a page with all escaped, data for training."""
    with ScriptedPolicy(respond=lambda request: HOSTILE) as policy:
        data = dataset({"note": HOSTILE}, {"do": "raise"})
        run = run_eval(data, APP, "--chat-url", policy.url, "--attempts", "2")
    rollouts = {(one["row"], one["attempt"]): one["rollout_id"] for one in run.results}
    rollout = rollouts[0, 2]
    for given in (rollout, "0.2"):
        shown = run_command(tmp_path, "show", given, "--run", "run")
        assert f"rollout {rollout}: row 0, attempt 2" in shown.stdout
        assert "success, reward 0, not passed" in shown.stdout
        assert "<script>alert(1)</script>" in shown.stdout
        assert "\x1b" not in shown.stdout
    failed = run_command(tmp_path, "show", "1", "--run", "run")
    assert "agent_error, workflow: the search index is gone" in failed.stdout
    page = (run.output / "report.html").read_text()
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "src=" not in page
    assert "the search index is gone" in page
    for name in ("out.jsonl", "out.parquet"):
        done = run_command(tmp_path, "export", "run", name)
        assert done.returncode == 0, done.stderr
        assert f"{name}: 2 samples" in done.stdout
    first, second = map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())
    assert first["messages"][-1]["content"] == second["messages"][-1]["content"] == HOSTILE
    parquet: Any = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(tmp_path / "out.parquet")
    assert table.to_pylist() == [first, second]
    types = {field.name: str(field.type) for field in table.schema}
    messages = types.pop("messages")
    assert types.pop("prompt") == messages
    assert set(types.items()) >= {("row", "int64"), ("reward", "double"), ("passed", "bool")}
    function = "struct<name: string, arguments: string>"
    for column in (
        "role: string, content: string, reasoning_content: string",
        f"tool_calls: list<element: struct<id: string, type: string, function: {function}>>",
        "tool_call_id: string",
    ):
        assert column in messages
    refused = run_command(tmp_path, "export", "run", "out.txt")
    assert refused.returncode == 2
    assert run_command(tmp_path, "show", "7", "--run", "run").returncode == 2


def test_runs_that_are_none(tmp_path: Path) -> None:
    """They are named, with status 2."""
    done = run_command(tmp_path, "compare", "this", "that")
    assert done.returncode == 2
    assert "this is no run" in done.stderr
