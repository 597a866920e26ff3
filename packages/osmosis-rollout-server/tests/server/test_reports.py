"""Reports in the callbacks' answers, and the trajectories that they reach."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from osmosis_ai.rollout import ExecutionOutcome, ExecutionRequest
from osmosis_ai.rollout.backend import report_status
from osmosis_ai.rollout.server import create_rollout_server
from osmosis_ai.rollout.types import RolloutStatus

from .harness import HeldBackend, ScriptedBackend, serving, succeeded
from .peer import Behaviour, Call, answer, peer, report

QUESTION = {"role": "user", "content": "2+2?"}
ANSWER = {"role": "assistant", "content": "4"}


def calls(tokens: int, model: str = "policy-7b") -> dict[str, Any]:
    metrics = {"prompt_tokens": tokens, "completion_tokens": 1, "completion_token_ids": [7]}
    return {"samples": {"any": {"model_name": model, "llm_call_metrics": [metrics]}}}


async def execute(request: ExecutionRequest) -> ExecutionOutcome:
    return succeeded(QUESTION, ANSWER, reward=1.0)


async def saved(
    root: Path,
    completion: Behaviour,
    grader: Behaviour,
    backend: ScriptedBackend | None = None,
    **fields: Any,
) -> dict[str, Any]:
    """Return the document once both answers have been dealt with."""

    def respond(call: Call) -> Behaviour:
        return completion if call.channel == "done" else grader

    app = create_rollout_server(backend=backend or ScriptedBackend(execute))
    async with peer(respond) as trainer, serving(app) as client:
        await client.start("r-1", **trainer.fields(), **fields)
        await trainer.bodies()
    # The server's end has waited for what the answers caused.
    document: dict[str, Any] = json.loads((root / "r-1" / "trajectory.json").read_bytes())
    return document


async def test_a_report_is_laid_over_the_saved_trajectory(artifact_root: Path) -> None:
    document = await saved(artifact_root, answer(), report(calls(20)))
    assert document["agent"]["model_name"] == "policy-7b"
    assert document["steps"][1]["metrics"] == {
        "prompt_tokens": 20,
        "completion_tokens": 1,
        "completion_token_ids": [7],
    }
    assert document["extra"]["osmosis"]["reward"] == 1.0


async def test_a_later_report_replaces_the_earlier_one(artifact_root: Path) -> None:
    document = await saved(artifact_root, report(calls(20, "old")), report(calls(30, "new")))
    assert document["agent"]["model_name"] == "new"
    assert document["final_metrics"]["total_prompt_tokens"] == 30


@pytest.mark.parametrize(("reported", "is_laid_over"), [(2, True), (1, False), (3, False)])
async def test_b55_calls_are_those_of_the_rollouts_own_turns(
    artifact_root: Path, reported: int, is_laid_over: bool
) -> None:
    """A turn of the prompt never receives metrics; calls that do not match are kept aside."""
    prompt = [QUESTION, {"role": "assistant", "content": "3", "usage": {"prompt_tokens": 99}}]

    async def conversing(request: ExecutionRequest) -> ExecutionOutcome:
        return succeeded(*prompt, QUESTION, ANSWER, QUESTION, ANSWER, reward=1.0)

    told = {"samples": {"any": {"llm_call_metrics": [{"prompt_tokens": 7}] * reported}}}
    backend = ScriptedBackend(conversing)
    document = await saved(
        artifact_root, answer(), report(told), backend, initial_messages=[*prompt, QUESTION]
    )
    metrics = [step.get("metrics") for step in document["steps"]]
    own = {"prompt_tokens": 7} if is_laid_over else None
    assert metrics == [None, None, None, own, None, own]
    aside = document["extra"]["osmosis"].get("unmatched_llm_call_metrics")
    assert aside == (None if is_laid_over else [{"prompt_tokens": 7}] * reported)
    assert document["final_metrics"]["total_prompt_tokens"] == 7 * reported


async def test_b14_a_report_reaches_the_document_beside_a_displaced_forgery(
    artifact_root: Path,
) -> None:
    async def forging(request: ExecutionRequest) -> ExecutionOutcome:
        (artifact_root / "r-1").mkdir(parents=True)
        (artifact_root / "r-1" / "trajectory.json").write_text("forged")
        return await execute(request)

    backend = ScriptedBackend(forging)
    document = await saved(artifact_root, report(calls(20)), report(calls(30, "new")), backend)
    assert document["agent"]["model_name"] == "new"
    names = {path.name for path in (artifact_root / "r-1").iterdir()}
    assert names == {"trajectory.json", "trajectory.json.displaced-1"}


@pytest.mark.parametrize(
    "later",
    [
        answer(),
        answer(body=b"thanks"),
        answer(body=b"[]"),
        answer(body=b"{}"),
        answer(body=b'{"trajectory": null}'),
        report("no object"),
        report({"samples": {"any": {"llm_call_metrics": [{"prompt_tokens": "many"}]}}}),
        answer(status=500, body=b'{"trajectory": {"model_name": "failed"}}'),
        answer(status=404, body=b'{"trajectory": {"model_name": "failed"}}'),
    ],
)
async def test_an_answer_without_a_usable_report_keeps_the_earlier_one(
    later: Behaviour, artifact_root: Path
) -> None:
    document = await saved(artifact_root, report(calls(20)), later)
    assert document["steps"][1]["metrics"]["prompt_tokens"] == 20


async def test_a_malformed_report_costs_a_warning(
    artifact_root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    document = await saved(artifact_root, answer(), report({"samples": 5, "model_name": "sek-ret"}))
    assert document["steps"][1]["message"] == "4"
    assert "The report on rollout r-1 is malformed (samples): it is ignored." in caplog.text
    assert "sek-ret" not in caplog.text


async def test_a_report_that_comes_before_the_document_waits_for_it(artifact_root: Path) -> None:
    reported = asyncio.Event()

    async def slow(request: ExecutionRequest) -> ExecutionOutcome:
        outcome = await execute(request)
        report_status(RolloutStatus.GRADING, outcome.workflow)
        await reported.wait()
        await asyncio.sleep(0.2)
        return outcome

    async def tell(writer: asyncio.StreamWriter) -> None:
        await report(calls(20))(writer)
        reported.set()

    document = await saved(artifact_root, tell, answer(), ScriptedBackend(slow))
    assert document["steps"][1]["metrics"]["prompt_tokens"] == 20


async def test_a_long_report(artifact_root: Path) -> None:
    long = calls(20)
    long["samples"]["any"]["llm_call_metrics"][0]["prompt_token_ids"] = list(range(50_000))
    document = await saved(artifact_root, answer(), report(long))
    assert document["steps"][1]["metrics"]["prompt_token_ids"][-1] == 49_999


async def test_an_answer_that_is_too_long_is_not_looked_at(
    artifact_root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    body = json.dumps({"trajectory": calls(20), "more": "x" * 20_000_000}).encode()
    document = await saved(artifact_root, answer(), answer(body=body))
    assert "metrics" not in document["steps"][1]
    assert "is longer than 16 MiB: it is not looked at" in caplog.text


async def test_a_report_on_a_rollout_without_a_sample_is_nothing(artifact_root: Path) -> None:
    backend = HeldBackend()
    app = create_rollout_server(backend=backend)
    async with peer(lambda _: report(calls(20))) as trainer, serving(app) as client:
        await client.start("r-1", **trainer.fields())
        await client.http.post("/rollout/cancel", json={"all": True})
        await trainer.bodies()
    assert not (artifact_root / "r-1" / "trajectory.json").exists()


async def test_the_trajectory_says_where_a_failure_came_from(artifact_root: Path) -> None:
    async def late(request: ExecutionRequest) -> ExecutionOutcome:
        outcome = await execute(request)
        grader = outcome.workflow.model_copy(
            update={
                "status": RolloutStatus.FAILURE,
                "err_category": "timeout",
                "origin": "deadline",
                "retryable": True,
            }
        )
        return ExecutionOutcome(workflow=outcome.workflow, grader=grader)

    document = await saved(artifact_root, answer(), answer(), ScriptedBackend(late))
    facts = document["extra"]["osmosis"]
    assert (facts["err_category"], facts["origin"], facts["retryable"]) == (
        "timeout",
        "deadline",
        True,
    )


async def test_the_trajectory_says_why_nothing_was_graded(artifact_root: Path) -> None:
    async def ungraded(request: ExecutionRequest) -> ExecutionOutcome:
        outcome = await execute(request)
        return ExecutionOutcome(workflow=outcome.workflow, grading_skipped="nobody wanted it")

    document = await saved(artifact_root, answer(), answer(), ScriptedBackend(ungraded))
    assert document["extra"]["osmosis"]["grading_skipped"] == "nobody wanted it"
