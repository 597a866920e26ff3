"""Runs that are repeated from their recordings, offline."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from osmosis_ai.rollout.eval import DatasetRow
from osmosis_ai.rollout.eval._outcomes import Attempt, Job
from osmosis_ai.rollout.eval._recording import Answer, Recording
from osmosis_ai.rollout.testing import PolicyRequest, ScriptedPolicy

PROJECT = Path(__file__).parent / "projects" / "moods.py"
EVENT = 'data: {"choices": [{"index": 0, "delta": {"content": "%s"}, "finish_reason": "stop"}]}\n\n'

pytestmark = pytest.mark.timeout(300)


def record(run: Any, requests: list[PolicyRequest], answers: list[Answer]) -> None:
    """Write what a gateway between the run and its policy would have recorded."""
    recording = Recording(run.output / "recording.jsonl")
    ids = {(result["row"], result["attempt"]): result["rollout_id"] for result in run.results}
    for place, request, answer in zip(sorted(ids), requests, answers, strict=True):
        row = DatasetRow(place[0], None, [], None, None)
        recording.append(Job(row, Attempt(place[1], None), ids[place]), request.body, answer)
    recording.close()


def test_a_run_repeats_exactly_offline(
    run_eval: Any, dataset: Callable[..., Path], eval_in: Callable[[Path], Any], tmp_path: Path
) -> None:
    """Each attempt gets its own answer again, cut streams too; what was not asked then is told."""
    data = dataset({}, {})
    said = ["4", "5", "4", "\u2028\u00e4"]
    answers = iter(said)
    with ScriptedPolicy(respond=lambda request: next(answers)) as policy:
        command = (data, f"{PROJECT}:app", "--max-in-flight", "1")
        run = run_eval(*command, "--chat-url", policy.url, "--attempts", "2")
    assert [result["passed"] for result in run.results] == [True, False, True, False]
    stream = "text/event-stream"
    bodies = [Answer(200, stream, f"{EVENT % text}data: [DONE]\n\n".encode()) for text in said]
    bodies[2] = Answer(200, stream, b'data: {"choices": [{"index": 0, "delta": {"con', cut=True)
    record(run, policy.requests, bodies)
    again = eval_in(tmp_path / "again")
    again.folder.mkdir()
    replayed = again(data, f"{PROJECT}:app", "--replay", run.output)
    assert [result["passed"] for result in replayed.results] == [True, False, None, False]
    assert replayed.results[2]["origin"] == "policy_endpoint"
    entries = (replayed.output / "results.jsonl").read_text().splitlines()
    texts = {
        (entry["outcome"]["row"], entry["outcome"]["attempt"]): entry["sample"]["messages"][-1]
        for entry in map(json.loads, entries)
        if entry["sample"]
    }
    assert texts[1, 2]["content"] == said[3]
    data.write_text(data.read_text().replace("2+2?", "3+3?"))
    other = eval_in(tmp_path / "other")
    other.folder.mkdir()
    changed = other(data, f"{PROJECT}:app", "--replay", run.output)
    assert {result["status"] for result in changed.results} == {"failure"}
    assert "it took another course" in changed.stderr


def test_a_rollout_that_left_leaves_again(
    run_eval: Any, dataset: Callable[..., Path], eval_in: Callable[[Path], Any], tmp_path: Path
) -> None:
    """What it did not wait for does not come the second time either, nor is it an error."""
    data = dataset({}, {})
    with ScriptedPolicy("4", "4") as policy:
        run = run_eval(data, f"{PROJECT}:app", "--max-in-flight", "1", "--chat-url", policy.url)
    part = (EVENT % "4")[:40].encode()
    left = [
        Answer(0, "", b"", left_after_sec=1.0),
        Answer(200, "text/event-stream", part, left_after_sec=1.0),
    ]
    record(run, policy.requests, left)
    again = eval_in(tmp_path / "again")
    again.folder.mkdir()
    replayed = again(data, f"{PROJECT}:app", "--replay", run.output, "--agent-timeout", "1")
    assert [result["origin"] for result in replayed.results] == ["deadline", "deadline"]


def test_a_run_without_a_recording(run_eval: Any, dataset: Callable[..., Path]) -> None:
    """It is named, and nothing runs."""
    with ScriptedPolicy("4") as policy:
        run = run_eval(dataset({}), f"{PROJECT}:app", "--chat-url", policy.url)
    again = run_eval(dataset({}), f"{PROJECT}:app", "--replay", run.output, "--fresh")
    assert again.status == 2
    assert "run run was not recorded" in again.stderr
