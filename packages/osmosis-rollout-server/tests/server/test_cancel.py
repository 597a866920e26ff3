"""Cancelling rollouts, in every state and by every selector."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from osmosis_ai.rollout import (
    AgentWorkflow,
    AgentWorkflowConfig,
    AgentWorkflowContext,
    AgentWorkflowOutput,
    ConcurrencyConfig,
    ExecutionOutcome,
    ExecutionRequest,
    ExecutionResult,
    LocalBackend,
    RolloutStatus,
)
from osmosis_ai.rollout.backend import report_status
from osmosis_ai.rollout.policy import PolicyClient
from osmosis_ai.rollout.server import create_rollout_server
from osmosis_ai.rollout.testing import Gate, ScriptedPolicy, stream_reply

from .harness import Client, HeldBackend, ScriptedBackend, serving, succeeded


async def cancel(client: Client, **selector: Any) -> dict[str, str]:
    answer = await client.http.post("/rollout/cancel", json=selector)
    assert answer.status_code == 200, answer.text
    dispositions: dict[str, str] = answer.json()["dispositions"]
    return dispositions


async def run_forever(request: ExecutionRequest) -> ExecutionOutcome:
    if not request.id.startswith("queued"):
        report_status(RolloutStatus.RUNNING)
    await asyncio.sleep(60)
    return succeeded()


async def test_ids_tell_what_became_of_each() -> None:
    backend = ScriptedBackend(run_forever)
    async with serving(create_rollout_server(backend=backend)) as client:
        await client.start("queued-1")
        await client.start("r-1")
        await client.start("r-2")
        chosen = ["queued-1", "r-1", "nobody", "r-1"]
        assert await cancel(client, ids=chosen) == {
            "queued-1": "cancelled_queued",
            "r-1": "cancelled_running",
            "nobody": "not_found",
        }
        assert await cancel(client, ids=["r-1"]) == {"r-1": "not_found"}
        result = (await client.poll("r-1")).json()
        assert result["status"] == "cancelled"
        assert "err_category" not in result
        assert (await client.status("r-2"))["status"] == "running"


async def test_a_prefix_or_all_choose_among_the_unfinished() -> None:
    backend = ScriptedBackend(run_forever)
    async with serving(create_rollout_server(backend=backend)) as client:
        for rollout_id in ("a-1", "a-2", "b-1"):
            await client.start(rollout_id)
        assert set(await cancel(client, prefix="a-")) == {"a-1", "a-2"}
        assert set(await cancel(client, all=True)) == {"b-1"}
        assert await cancel(client, all=True) == {}
        assert await cancel(client, ids=[]) == {}


async def grade_forever(request: ExecutionRequest) -> ExecutionOutcome:
    report_status(RolloutStatus.GRADING, succeeded(reward=1.0).workflow)
    await asyncio.sleep(60)
    return succeeded(reward=1.0)


@pytest.mark.parametrize("selector", [{"ids": ["r-1"]}, {"prefix": "r"}, {"all": True}])
async def test_a_rollout_that_is_being_graded(selector: dict[str, Any]) -> None:
    async with serving(create_rollout_server(backend=ScriptedBackend(grade_forever))) as client:
        await client.start("r-1")
        await client.until("r-1", "grading")
        assert await cancel(client, **selector) == {"r-1": "cancelled_running"}
        result = await client.result("r-1")
    assert result["status"] == "cancelled"
    assert "sample" not in result


@pytest.mark.parametrize("selector", [{"ids": ["r-1"]}, {"prefix": "r"}, {"all": True}])
async def test_what_has_ended_stays_as_it_is(selector: dict[str, Any]) -> None:
    """Also while its code unwinds, and once it has."""
    unwind = asyncio.Event()

    async def stubborn(request: ExecutionRequest) -> ExecutionOutcome:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        await unwind.wait()
        return succeeded(reward=1.0)

    untouched = {"r-1": "not_found"} if "ids" in selector else {}
    async with serving(create_rollout_server(backend=ScriptedBackend(stubborn))) as client:
        await client.start("r-1")
        assert set(await cancel(client, **selector)) == {"r-1"}
        assert await cancel(client, **selector) == untouched
        unwind.set()
        assert (await client.result("r-1"))["status"] == "cancelled"
        assert await cancel(client, **selector) == untouched
        assert (await client.status("r-1"))["status"] == "cancelled"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"all": False},
        {"prefix": ""},
        {"ids": ["a"], "all": True},
        {"ids": ["a"], "prefix": "a"},
        {"prefix": "a", "all": True},
        {"ids": "a"},
        {"ids": [1]},
        {"all": "yes"},
        {"unknown": 1},
    ],
)
async def test_anything_but_one_selector_is_422(body: dict[str, Any]) -> None:
    async with serving(create_rollout_server(backend=HeldBackend())) as client:
        await client.start("a")
        answer = await client.http.post("/rollout/cancel", json=body)
        assert (await client.status("a"))["status"] == "queued"
    assert answer.status_code == 422


async def test_a_waiting_poll_is_told_at_once() -> None:
    async with serving(create_rollout_server(backend=HeldBackend())) as client:
        await client.start("r-1")
        poll = asyncio.create_task(client.poll("r-1"))
        await asyncio.sleep(0.1)
        await cancel(client, all=True)
        assert (await poll).json()["status"] == "cancelled"


async def test_b18_a_late_success_of_cancelled_work_is_dropped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    finished = asyncio.Event()

    async def stubborn(request: ExecutionRequest) -> ExecutionOutcome:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            report_status(RolloutStatus.GRADING)
        finished.set()
        return succeeded(reward=1.0)

    async with serving(create_rollout_server(backend=ScriptedBackend(stubborn))) as client:
        await client.start("r-1")
        await cancel(client, ids=["r-1"])
        await finished.wait()
        assert (await client.post("r-1")).status_code == 409
        assert (await client.status("r-1"))["reward"] is None
        assert (await client.poll("r-1")).json()["status"] == "cancelled"
    assert any("dropped a result" in record.getMessage() for record in caplog.records)


class OwnCancel(HeldBackend):
    """Cancels by itself, and breaks when it is told to."""

    def cancel_rollouts(
        self, ids: list[str] | None = None, prefix: str | None = None, all: bool = False
    ) -> dict[str, str]:
        if ids == ["broken"]:
            raise RuntimeError
        self.outcome = ExecutionOutcome(workflow=ExecutionResult(status=RolloutStatus.CANCELLED))
        self.release.set()
        return dict.fromkeys(ids or [], "cancelled_running")


async def test_the_backend_may_cancel_by_itself_and_may_fail_to() -> None:
    backend = OwnCancel()
    async with serving(create_rollout_server(backend=backend)) as client:
        await client.start("broken")
        assert await cancel(client, ids=["broken"]) == {"broken": "cancelled_queued"}
        assert backend.running == set()
        await client.start("r-1")
        assert await cancel(client, ids=["r-1"]) == {"r-1": "cancelled_running"}


class Caller(AgentWorkflow[AgentWorkflowConfig]):
    """Asks the policy once."""

    async def run(self, ctx: AgentWorkflowContext[AgentWorkflowConfig]) -> AgentWorkflowOutput:
        reply = await PolicyClient().complete(ctx.prompt)
        return AgentWorkflowOutput(messages=[*ctx.prompt, dict(reply.message)])


async def test_cancelling_ends_the_call_to_the_policy_and_frees_the_slot() -> None:
    limit = AgentWorkflowConfig(name="one", concurrency=ConcurrencyConfig(max_concurrent=1))
    backend = LocalBackend(workflow=Caller, workflow_config=limit)
    gate = Gate()
    with ScriptedPolicy(stream_reply(gate), "4") as policy:
        async with serving(create_rollout_server(backend=backend)) as client:
            await client.start("r-1", chat_completions_url=policy.url)
            await asyncio.to_thread(gate.wait)
            await client.start("r-2", chat_completions_url=policy.url)
            assert (await client.status("r-2"))["status"] == "queued"
            assert await cancel(client, ids=["r-1"]) == {"r-1": "cancelled_running"}
            assert await asyncio.to_thread(policy.requests[0].wait) == "disconnected"
            result = await client.result("r-2")
            assert (await client.poll("r-1")).json()["status"] == "cancelled"
    assert result["status"] == "success"
