"""Callbacks: what is sent on the two channels, and in which order."""

import asyncio
import sys
from typing import Any

import pytest

from osmosis_ai.rollout import (
    AgentWorkflow,
    AgentWorkflowConfig,
    AgentWorkflowContext,
    ConcurrencyConfig,
    ExecutionOutcome,
    ExecutionRequest,
    ExecutionResult,
    Grader,
    GraderContext,
    LocalBackend,
    RolloutSample,
    RolloutStatus,
)
from osmosis_ai.rollout.agent_workflow import ToolError
from osmosis_ai.rollout.backend import report_status
from osmosis_ai.rollout.policy import PolicyClient
from osmosis_ai.rollout.server import create_rollout_server

from .harness import HeldBackend, ScriptedBackend, serving, succeeded
from .peer import Peer, answer, peer

QUESTION = {"role": "user", "content": "2+2?"}
ANSWER = {"role": "assistant", "content": "4"}


class Misbehaving(AgentWorkflow[AgentWorkflowConfig]):
    """Does what the request's metadata says."""

    def __init__(self, config: AgentWorkflowConfig | None = None) -> None:
        super().__init__(config)
        if config is not None and config.name == "broken":
            msg = "no such index"
            raise RuntimeError(msg)

    async def run(self, ctx: AgentWorkflowContext[AgentWorkflowConfig]) -> list[dict[str, Any]]:
        match (ctx.metadata or {}).get("workflow"):
            case "raises":
                msg = "the agent broke"
                raise RuntimeError(msg)
            case "cancels itself":
                raise asyncio.CancelledError
            case "exits":
                sys.exit("the agent exits")
            case "hangs":
                await asyncio.sleep(60)
            case "calls the policy":
                await PolicyClient().complete(ctx.prompt)
            case "uses a tool":
                msg = "search"
                raise ToolError(msg) from TimeoutError()
        return [*ctx.prompt, ANSWER]


class MisbehavingGrader(Grader):
    """Does what the request's metadata says, and gives 1."""

    async def grade(self, ctx: GraderContext) -> None:
        match (ctx.metadata or {}).get("grader"):
            case "raises":
                msg = "no verdict"
                raise KeyError(msg)
            case "cancels itself":
                raise asyncio.CancelledError
            case "hangs":
                await asyncio.sleep(60)
            case "sets nothing":
                return
        ctx.set_reward(1)


def local(name: str = "sound", **options: Any) -> LocalBackend:
    config = AgentWorkflowConfig(name=name, concurrency=ConcurrencyConfig(**options))
    return LocalBackend(workflow=Misbehaving, workflow_config=config, grader=MisbehavingGrader)


async def test_both_channels_and_polling_tell_of_one_success() -> None:
    async with peer() as trainer, serving(create_rollout_server(backend=local())) as client:
        fields = trainer.fields(controller_api_key="the-key")
        await client.start("r-1", **fields)
        completion, graded = await trainer.bodies()
        polled = await client.result("r-1")
    assert completion == {
        "status": "success",
        "rollout_id": "r-1",
        "extra_fields": None,
        "err_message": None,
        "err_category": None,
    }
    sample = {
        "messages": [QUESTION, ANSWER],
        "label": "4",
        "reward": 1.0,
        "remove_sample": False,
        "metrics": {},
        "extra_fields": {},
    }
    assert graded == {
        "status": "success",
        "rollout_id": "r-1",
        "sample": sample,
        "err_message": None,
        "err_category": None,
    }
    assert polled == {"rollout_id": "r-1", "status": "success", "sample": sample}
    assert [call.channel for call in trainer.calls] == ["done", "graded"]
    for call in trainer.calls:
        assert call.headers["authorization"] == "Bearer the-key"
        assert call.headers["content-type"] == "application/json"
    assert len({call.key for call in trainer.calls}) == 2


FAILURES: dict[str, tuple[dict[str, Any], tuple[Any, ...]]] = {
    "workflow raises": (
        {"metadata": {"workflow": "raises"}},
        ("agent_error", "workflow", False, "the agent broke"),
    ),
    "workflow cancels itself": (
        {"metadata": {"workflow": "cancels itself"}},
        ("agent_error", "workflow", False, "CancelledError"),
    ),
    "workflow exits": (
        {"metadata": {"workflow": "exits"}},
        ("agent_error", "workflow", False, "the agent exits"),
    ),
    "workflow is late": (
        {"metadata": {"workflow": "hangs"}, "agent_timeout_sec": 0.1},
        ("timeout", "deadline", True, "workflow exceeded its 0.1s deadline"),
    ),
    "policy is down": (
        {"metadata": {"workflow": "calls the policy"}},
        ("http_error", "policy_endpoint", True, "the policy endpoint gave no answer"),
    ),
    "tool fails": (
        {"metadata": {"workflow": "uses a tool"}},
        ("timeout", "tool", True, "search"),
    ),
}


@pytest.mark.parametrize(("fields", "told"), FAILURES.values(), ids=FAILURES)
async def test_b15_b16_a_failed_workflow_closes_both_channels(
    fields: dict[str, Any], told: tuple[Any, ...], caplog: pytest.LogCaptureFixture
) -> None:
    async with peer() as trainer, serving(create_rollout_server(backend=local())) as client:
        await client.start("r-1", **trainer.fields(**fields))
        completion, graded = await trainer.bodies()
        polled = await client.result("r-1")
    category, origin, retryable, message = told
    for body in (completion, graded, polled):
        assert body["status"] == "failure"
        assert body["err_category"] == category
        assert (body["origin"], body["retryable"]) == (origin, retryable)
        assert body["err_message"].startswith(message)
    assert graded["sample"] is None
    assert [call.channel for call in trainer.calls] == ["done", "graded"]
    assert f"category {category}, origin {origin}, retryable {retryable}" in caplog.text


GRADINGS: dict[str, tuple[dict[str, Any], tuple[Any, ...]]] = {
    "grader raises": (
        {"metadata": {"grader": "raises"}},
        ("agent_error", "grader", False),
    ),
    "grader cancels itself": (
        {"metadata": {"grader": "cancels itself"}},
        ("agent_error", "grader", False),
    ),
    "grader sets nothing": (
        {"metadata": {"grader": "sets nothing"}},
        ("validation_error", "grader", False),
    ),
    "grader is late": (
        {"metadata": {"grader": "hangs"}, "grader_timeout_sec": 0.1},
        ("timeout", "deadline", True),
    ),
}


@pytest.mark.parametrize(("fields", "told"), GRADINGS.values(), ids=GRADINGS)
async def test_b15_b16_a_failed_grading_is_no_reward_of_0(
    fields: dict[str, Any], told: tuple[Any, ...]
) -> None:
    async with peer() as trainer, serving(create_rollout_server(backend=local())) as client:
        await client.start("r-1", **trainer.fields(**fields))
        completion, graded = await trainer.bodies()
        polled = await client.result("r-1")
    assert (completion["status"], completion["err_message"]) == ("success", None)
    for body in (graded, polled):
        assert body["status"] == "failure"
        assert (body["err_category"], body["origin"], body["retryable"]) == told
        assert body["sample"]["reward"] is None
        assert body["sample"]["messages"] == [QUESTION, ANSWER]
    assert [call.channel for call in trainer.calls] == ["done", "graded"]


async def test_b16_a_constructor_that_fails() -> None:
    app = create_rollout_server(backend=local("broken"))
    async with peer() as trainer, serving(app) as client:
        await client.start("r-1", **trainer.fields())
        completion, graded = await trainer.bodies()
    assert completion["err_message"] == graded["err_message"] == "no such index"
    assert (completion["status"], graded["status"], graded["sample"]) == ("failure",) * 2 + (None,)


async def nothing(request: ExecutionRequest) -> Any:
    return "no outcome"


async def crash(request: ExecutionRequest) -> Any:
    raise OSError


async def cancelled(request: ExecutionRequest) -> Any:
    raise asyncio.CancelledError


@pytest.mark.parametrize("script", [nothing, crash, cancelled])
async def test_b16_a_backend_that_crashes(script: Any) -> None:
    app = create_rollout_server(backend=ScriptedBackend(script))
    async with peer() as trainer, serving(app) as client:
        await client.start("r-1", **trainer.fields())
        completion, graded = await trainer.bodies()
    for body in (completion, graded):
        assert (body["status"], body["err_category"]) == ("failure", "internal_error")
        assert (body["origin"], body["retryable"]) == ("infrastructure", True)


async def crash_while_grading(request: ExecutionRequest) -> Any:
    workflow = ExecutionResult(status=RolloutStatus.SUCCESS, sample=RolloutSample())
    report_status(RolloutStatus.GRADING, workflow)
    raise OSError


async def test_b16_a_crash_while_grading_leaves_the_completion_as_it_is() -> None:
    app = create_rollout_server(backend=ScriptedBackend(crash_while_grading))
    async with peer() as trainer, serving(app) as client:
        await client.start("r-1", **trainer.fields())
        completion, graded = await trainer.bodies()
    assert (completion["status"], graded["status"]) == ("success", "failure")
    assert graded["sample"] is None
    assert len(trainer.calls) == 2


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"label": None}, "the request has neither a label nor metadata"),
        ({"grade": False}, "the request asked for no grading"),
        ({}, "the backend has no grader"),
    ],
)
async def test_b16_a_skipped_grading_closes_its_channel_with_the_reason(
    fields: dict[str, Any], reason: str
) -> None:
    backend = local() if fields else LocalBackend(workflow=Misbehaving)
    async with peer() as trainer, serving(create_rollout_server(backend=backend)) as client:
        await client.start("r-1", **trainer.fields(**fields))
        completion, graded = await trainer.bodies()
        polled = await client.result("r-1")
    assert completion["status"] == "success"
    assert graded == {
        "status": "failure",
        "rollout_id": "r-1",
        "sample": None,
        "err_message": f"grading was skipped: {reason}",
        "err_category": None,
        "grading_skipped": reason,
    }
    assert (polled["status"], polled["grading_skipped"]) == ("success", reason)
    assert polled["sample"]["reward"] is None


async def test_b16_a_backend_that_does_not_say_why_it_did_not_grade() -> None:
    async def ungraded(request: ExecutionRequest) -> ExecutionOutcome:
        return ExecutionOutcome(workflow=succeeded(QUESTION).workflow)

    app = create_rollout_server(backend=ScriptedBackend(ungraded))
    async with peer() as trainer, serving(app) as client:
        await client.start("r-1", **trainer.fields())
        _, graded = await trainer.bodies()
        await client.start("r-2", **trainer.fields("r-2", label=None))
        _, unlabelled = await trainer.bodies("r-2")
    assert graded["err_message"] == "grading was skipped: the backend did not grade"
    assert "neither a label nor metadata" in unlabelled["err_message"]


async def test_a_completion_url_alone_means_no_grading() -> None:
    async with peer() as trainer, serving(create_rollout_server(backend=local())) as client:
        await client.start("r-1", **trainer.fields(grader_callback_url=None))
        polled = await client.result("r-1")
        await trainer.wait_for("done")
    assert polled["sample"]["reward"] is None
    assert [call.channel for call in trainer.calls] == ["done"]


async def test_a_grader_url_alone_is_called_for_everything() -> None:
    async with peer() as trainer, serving(create_rollout_server(backend=local())) as client:
        for number, kind in enumerate(("fine", "raises")):
            fields = trainer.fields(f"r-{number}", completion_callback_url=None)
            await client.start(f"r-{number}", **fields, metadata={"workflow": kind})
            await trainer.wait_for("graded", 1, f"r-{number}")
    assert [call.body["status"] for call in trainer.calls] == ["success", "failure"]


async def test_grading_waits_for_no_delivery_and_its_delivery_for_the_completions() -> None:
    graded, arrived = asyncio.Event(), asyncio.Event()

    async def execute(request: ExecutionRequest) -> ExecutionOutcome:
        outcome = succeeded(QUESTION, reward=1.0)
        report_status(RolloutStatus.GRADING, outcome.workflow)
        graded.set()
        return outcome

    async def wait(writer: asyncio.StreamWriter) -> None:
        await arrived.wait()
        await answer()(writer)

    app = create_rollout_server(backend=ScriptedBackend(execute))
    async with peer(lambda _: wait) as trainer, serving(app) as client:
        await client.start("r-1", **trainer.fields())
        await trainer.wait_for("done")
        await graded.wait()
        assert (await client.result("r-1"))["status"] == "success"
        assert [call.channel for call in trainer.calls] == ["done"]
        arrived.set()
        await trainer.wait_for("graded")


async def test_a_slot_is_free_while_callbacks_are_delivered() -> None:
    arrived = asyncio.Event()

    async def wait(writer: asyncio.StreamWriter) -> None:
        await arrived.wait()
        await answer()(writer)

    app = create_rollout_server(backend=local(max_concurrent=1))
    async with peer(lambda _: wait) as trainer, serving(app) as client:
        for number in range(3):
            await client.start(f"r-{number}", **trainer.fields(f"r-{number}"))
            assert (await client.result(f"r-{number}"))["status"] == "success"
        assert {call.channel for call in trainer.calls} == {"done"}
        arrived.set()
        for number in range(3):
            await trainer.wait_for("graded", 1, f"r-{number}")


async def test_b18_b21_what_is_cancelled_is_told_so_once() -> None:
    backend = HeldBackend()
    async with peer() as trainer, serving(create_rollout_server(backend=backend)) as client:
        await client.start("r-1", **trainer.fields())
        await client.http.post("/rollout/cancel", json={"ids": ["r-1"]})
        completion, graded = await trainer.bodies()
    assert (completion["status"], graded["status"]) == ("cancelled", "failure")
    assert graded["err_message"] == "the rollout was cancelled by a request"
    assert (graded["origin"], graded["retryable"], graded["sample"]) == ("cancelled", False, None)
    assert len(trainer.calls) == 2


async def test_b18_the_late_result_of_a_cancelled_rollout_is_dropped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    late = asyncio.Event()

    async def stubborn(request: ExecutionRequest) -> ExecutionOutcome:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await late.wait()
        outcome = succeeded(QUESTION, reward=1.0)
        report_status(RolloutStatus.GRADING, outcome.workflow)
        return outcome

    app = create_rollout_server(backend=ScriptedBackend(stubborn), result_retention_sec=0)
    async with peer() as trainer, serving(app) as client:
        await client.start("r-1", **trainer.fields())
        await client.http.post("/rollout/cancel", json={"ids": ["r-1"]})
        await trainer.bodies()
        assert (await client.post("r-1")).status_code == 409  # its task still runs
        late.set()
        await client.until("r-1", "unknown")
    assert [call.channel for call in trainer.calls] == ["done", "graded"]
    assert "dropped a result that came after its end" in caplog.text


async def test_b18_a_rollout_cancelled_while_grading_keeps_its_completion() -> None:
    async with peer() as trainer, serving(create_rollout_server(backend=local())) as client:
        await client.start("r-1", **trainer.fields(metadata={"grader": "hangs"}))
        await trainer.wait_for("done")
        await client.http.post("/rollout/cancel", json={"ids": ["r-1"]})
        completion, graded = await trainer.bodies()
    assert (completion["status"], graded["status"]) == ("success", "failure")
    assert (graded["sample"], graded["origin"]) == (None, "cancelled")


async def until_polled(trainer: Peer) -> None:
    await asyncio.sleep(0.5)
    assert not trainer.calls


async def test_the_first_poll_arms_the_lease_of_a_rollout_with_callbacks() -> None:
    backend = HeldBackend()
    app = create_rollout_server(
        backend=backend, polling_lease_timeout_sec=0.2, result_wait_timeout_sec=0
    )
    async with peer() as trainer, serving(app) as client:
        await client.start("r-1", **trainer.fields())
        await until_polled(trainer)
        assert backend.running == {"r-1"}
        assert (await client.poll("r-1")).json()["status"] == "queued"
        completion, graded = await trainer.bodies()
    for body in (completion, graded):
        assert (body["status"], body["err_category"]) == ("failure", "lease_expired")
        assert (body["origin"], body["retryable"]) == ("infrastructure", True)


async def test_reported_results_are_told_even_if_the_status_was_known_before() -> None:
    """A poll may have asked the backend for its status before the backend reported."""
    grading, graded = asyncio.Event(), asyncio.Event()

    class Early(ScriptedBackend):
        def rollout_status(self, rollout_id: str, /) -> dict[str, Any]:
            return {"status": "grading"}

    async def execute(request: ExecutionRequest) -> ExecutionOutcome:
        await grading.wait()
        outcome = succeeded(QUESTION, reward=1.0)
        report_status(RolloutStatus.GRADING, outcome.workflow)
        await graded.wait()
        return outcome

    async with (
        peer() as trainer,
        serving(create_rollout_server(backend=Early(execute))) as client,
    ):
        await client.start("r-1", **trainer.fields())
        assert (await client.status("r-1"))["status"] == "grading"
        assert not trainer.calls
        grading.set()
        await trainer.wait_for("done")
        graded.set()
        await trainer.bodies()
    assert len(trainer.calls) == 2
