"""Runs with the policy gateway between the rollouts and their model."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gsm8k import CORRECT, DATASET, DEMO, SOLUTIONS

from osmosis_ai.rollout.testing import (
    Cut,
    PolicyRequest,
    ReplayPolicy,
    Reply,
    ScriptedPolicy,
    chunk,
    error_reply,
    reply,
    stream_reply,
)
from osmosis_ai.rollout.trajectory import Trajectory

PROJECTS = Path(__file__).parent / "projects"
APP = f"{PROJECTS / 'moods.py'}:app"
USAGE = {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}

pytestmark = pytest.mark.timeout(300)


def right(request: PolicyRequest) -> Reply:
    """Answer as an engine that was asked for token ids."""
    entries = [{"token": "4", "logprob": -0.5}]
    return reply(
        "4",
        usage=USAGE,
        prompt_token_ids=[1, 2, 3],
        token_ids=[4],
        logprobs=entries,
        model=request.body["model"],
    )


def trajectories(run: Any) -> list[Trajectory]:
    paths = [run.output / "rollouts" / result["rollout_id"] for result in run.results]
    return [
        Trajectory.model_validate_json((path / "trajectory.json").read_bytes()) for path in paths
    ]


def test_trajectories_know_what_the_workflow_never_asked_for(
    run_eval: Any, dataset: Callable[..., Path]
) -> None:
    """Usage, model, token ids and log probabilities of every call, in every file at the end."""
    with ScriptedPolicy(respond=right) as policy:
        upstream = ("--base-url", policy.url, "--model", "real", "--token-ids")
        run = run_eval(dataset(*({} for _ in range(20))), APP, *upstream)
    assert run.status == 0, run.stderr
    for document in trajectories(run):
        [step] = [step for step in document.steps if step.source == "agent"]
        assert step.model_name == document.agent.model_name == "real"
        assert step.metrics is not None
        assert (step.metrics.prompt_tokens, step.metrics.completion_tokens) == (9, 2)
        assert step.metrics.prompt_token_ids == [1, 2, 3]
        assert step.metrics.completion_token_ids == [4]
        assert step.metrics.logprobs == [-0.5]
    assert (run.metrics["prompt_tokens"]["total"], run.metrics["findings"]) == (180, {})
    assert run.results[0]["policy"]["calls"] == 1
    assert "callback" not in (run.output / "server.log").read_text()


def test_a_server_that_runs_already(
    run_eval: Any, dataset: Callable[..., Path], tmp_path: Path
) -> None:
    """It reports to the run's gateway as well, and its own files tell of every call at the end."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "uvicorn", "moods:app", f"--app-dir={PROJECTS}"]
    files = tmp_path / "artifacts"
    server = subprocess.Popen(
        [*command, f"--port={port}", "--log-level=warning"],
        env=os.environ | {"_OSMOSIS_ROLLOUT_ARTIFACT_ROOT": str(files)},
    )
    try:
        with ScriptedPolicy(respond=right) as policy:
            upstream = ("--base-url", policy.url, "--model", "real", "--token-ids")
            where = ("--url", f"http://127.0.0.1:{port}")
            data = dataset({}, {}, {"do": "raise"})
            while (run := run_eval(data, *where, *upstream)).status == 2:
                assert "/health" in run.stderr  # it has not come up yet
    finally:
        server.terminate()
        server.wait(30)
    assert [result["status"] for result in run.results] == ["success", "success", "failure"]
    for result in run.results[:2]:
        document = json.loads((files / result["rollout_id"] / "trajectory.json").read_bytes())
        assert document["steps"][-1]["metrics"]["completion_token_ids"] == [4]


def test_keys_stay_where_they_belong(run_eval: Any, dataset: Callable[..., Path]) -> None:
    """The upstream's own reaches it alone; neither it nor the run's bearer is written anywhere."""
    with ScriptedPolicy("4", error_reply(401, "no such key sk-upstream")) as policy:
        upstream = ("--base-url", policy.url, "--model", "real", "--record")
        run = run_eval(dataset({}, {}), APP, *upstream, OPENAI_API_KEY="sk-upstream")
    assert {request.headers["authorization"] for request in policy.requests} == {
        "Bearer sk-upstream"
    }
    assert [result["status"] for result in run.results].count("failure") == 1
    assert "no such key [secret]" in run.stderr
    files = [path for path in run.output.rglob("*") if path.is_file()]
    written = "".join(path.read_text() for path in files)
    assert "sk-upstream" not in written + run.stdout + run.stderr
    assert "Bearer" not in written


def test_findings_are_told_in_words(run_eval: Any, dataset: Callable[..., Path]) -> None:
    """In the results, at the end of the run, in the transcript, and on the page."""
    with ScriptedPolicy(respond=lambda _: reply("4", finish_reason="length")) as policy:
        upstream = ("--base-url", policy.url, "--model", "real")
        project = f"{PROJECTS / 'bypassing.py'}:app"
        run = run_eval(dataset({"do": "bypass"}, {"do": "rewrite"}, {}), project, *upstream)
    assert run.status == 0, run.stderr
    kinds = [
        {found["kind"]: found["message"] for found in result["policy"]["findings"]}
        for result in run.results
    ]
    assert [found.keys() for found in kinds] == [
        {"bypassed", "unused", "length"},
        {"rewritten", "length"},
        {"length"},
    ]
    assert "assistant turn 2 of the sample came from no call" in kinds[0]["bypassed"]
    assert "call 2 is message 1 (user)" in kinds[1]["rewritten"]
    assert run.metrics["findings"] == {"bypassed": 1, "length": 3, "rewritten": 1, "unused": 1}
    assert "rollouts with findings: 3 length, 1 bypassed" in run.stdout
    assert "call 2 is message 1 (user)" in (run.output / "report.html").read_text()


def test_a_recorded_run_repeats_exactly_offline(
    run_eval: Any, dataset: Callable[..., Path], eval_in: Callable[[Path], Any], tmp_path: Path
) -> None:
    """Answers, refusals and cut streams alike."""
    broken = stream_reply(chunk(content="4"), Cut())
    # Twice: the gateway asks again without the parameters that are its own.
    refused = [error_reply(400, "too long")] * 2
    script = ["4", "5", broken, *refused, "\u2028\u00e4", "4"]
    data = dataset({}, {}, {})
    with ScriptedPolicy(*script) as policy:
        upstream = ("--base-url", policy.url, "--model", "real", "--record", "--token-ids")
        run = run_eval(data, APP, *upstream, "--attempts", "2", "--max-in-flight", "1")
    again = eval_in(tmp_path / "again")
    again.folder.mkdir()
    replayed = again(data, APP, "--replay", run.output)
    told = ("row", "attempt", "status", "reward", "err_category", "origin", "turns")
    first, second = (
        [{name: result[name] for name in told} for result in one.results] for one in (run, replayed)
    )
    assert first == second
    assert [result["reward"] for result in first] == [1.0, 0.0, None, None, 0.0, 1.0]


@pytest.mark.parametrize("model", CORRECT)
def test_the_counts_with_the_gateway_between(run_eval: Any, model: str) -> None:
    """Real solutions, several calls each: the same verdicts, nothing lost, and nothing found."""
    with ReplayPolicy(SOLUTIONS) as policy:
        upstream = ("--base-url", policy.url_for(model), "--model", model, "--record")
        run = run_eval(DATASET, f"{DEMO / 'main.py'}:app", *upstream)
    assert run.status == 0, run.stderr
    assert (run.metrics["passed"], run.metrics["graded"]) == (CORRECT[model], 200)
    assert run.metrics["findings"] == {}
    calls = sum(result["policy"]["calls"] for result in run.results)
    assert calls == run.metrics["turns"]["total"]
    assert len((run.output / "recording.jsonl").read_bytes().splitlines()) == calls


def test_the_counts_after_kill_9_and_resume(run_eval: Any) -> None:
    """What a lost run had recorded and acknowledged, the resumed one goes on from."""
    model = "175b_verification"
    journal = run_eval.output / "results.jsonl"
    with ReplayPolicy(SOLUTIONS) as policy:
        upstream = ("--base-url", policy.url_for(model), "--model", model, "--record")
        command = (DATASET, f"{DEMO / 'main.py'}:app", *upstream)
        process = run_eval.start(*command)
        while not journal.exists() or journal.read_bytes().count(b"\n") < 60:
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        run = run_eval(*command)
    assert run.status == 0, run.stderr
    assert (run.metrics["passed"], run.metrics["graded"]) == (110, 200)
    again = run_eval.folder / "again"
    replayed = type(run_eval)(again)
    again.mkdir()
    offline = replayed(DATASET, f"{DEMO / 'main.py'}:app", "--replay", run.output)
    assert offline.metrics["passed"] == 110
    assert re.search(r"resumed: \d+ of 200", run.stderr)


@pytest.mark.parametrize("agent", ["plain", "strands", "openai_agents"])
def test_no_framework_is_accused(run_eval: Any, agent: str, tmp_path: Path) -> None:
    """Agents of every kind call tools, and their samples match their calls, whatever the form."""
    project = DEMO / ("main.py" if agent == "plain" else f"main_{agent}.py")
    model = "175b_verification"
    with ReplayPolicy(SOLUTIONS) as policy:
        upstream = ("--base-url", policy.url_for(model), "--model", model)
        run = run_eval(DATASET, f"{project}:app", *upstream, "--limit", "30")
    assert run.status == 0, run.stderr
    assert run.metrics["findings"] == {}
    assert sum(result["policy"]["calls"] for result in run.results) > 60
    for document in trajectories(run):
        steps = [step for step in document.steps if step.source == "agent"]
        assert all(step.metrics and step.metrics.extra for step in steps)
        assert "unmatched" not in json.dumps(document.extra)
