"""Runs that outlive their rollout: in threads, and streams that nobody reads to their end."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
from agents import Runner

from osmosis_ai.rollout import (
    AgentWorkflow,
    AgentWorkflowContext,
    ExecutionRequest,
    LocalBackend,
    RolloutContext,
)
from osmosis_ai.rollout.integrations.agents.openai_agents import (
    OsmosisAgent,
    OsmosisMemorySession,
    OsmosisRolloutModel,
)
from osmosis_ai.rollout.policy import RolloutEndedError, close_policy_clients
from osmosis_ai.rollout.testing import Gate, ScriptedPolicy, reply

PROMPT = [{"role": "user", "content": "2+2?"}]

type Run = Callable[[AgentWorkflowContext[Any]], Awaitable[Any]]


def backend_of(run_workflow: Run) -> LocalBackend:
    class Workflow(AgentWorkflow[Any]):
        async def run(self, ctx: AgentWorkflowContext[Any]) -> Any:
            return await run_workflow(ctx)

    return LocalBackend(workflow=Workflow)


def build() -> tuple[OsmosisAgent[Any], OsmosisMemorySession]:
    return OsmosisAgent(name="a", model=OsmosisRolloutModel()), OsmosisMemorySession()


@pytest.mark.parametrize("ending", ["deadline", "cancel"])
async def test_run_sync_in_a_thread(policy: ScriptedPolicy, ending: str) -> None:
    """The thread's call ends with the rollout, and the policy gets no other."""
    gate, loop = Gate(), asyncio.get_running_loop()
    told: asyncio.Future[Exception] = loop.create_future()

    async def run(ctx: AgentWorkflowContext[Any]) -> None:
        agent, session = build()

        def call() -> None:
            # The SDK makes a loop for the thread and leaves it open.
            own = asyncio.new_event_loop()
            asyncio.set_event_loop(own)
            with pytest.raises(RolloutEndedError) as caught:
                Runner.run_sync(agent, cast("Any", ctx.prompt), session=session)
            own.run_until_complete(close_policy_clients())
            asyncio.set_event_loop(None)
            own.close()
            loop.call_soon_threadsafe(told.set_result, caught.value)

        await asyncio.to_thread(call)

    policy.add(reply(["half ", "an answer"]).insert(1, gate))
    backend = backend_of(run)
    limit = 6.0 if ending == "deadline" else None
    request = ExecutionRequest(id="r-1", prompt=PROMPT, agent_timeout_sec=limit)
    with RolloutContext(policy.url):
        executing = asyncio.create_task(backend.execute(request))
        await asyncio.to_thread(gate.wait)
        if ending == "cancel":
            backend.cancel_rollouts(all=True)
        outcome = await executing
        assert await asyncio.to_thread(policy.requests[0].wait) == "disconnected"
        assert isinstance(await told, RolloutEndedError)
    assert outcome.result.sample is not None
    assert [item["role"] for item in outcome.result.sample.messages] == ["user"]
    assert len(policy.requests) == 1


async def test_a_stream_that_is_left_behind(policy: ScriptedPolicy) -> None:
    """The run behind it ends when the workflow has returned."""
    gate = Gate()
    runs: list[asyncio.Task[Any]] = []

    async def run(ctx: AgentWorkflowContext[Any]) -> list[Any]:
        agent, session = build()
        result = Runner.run_streamed(agent, cast("Any", ctx.prompt), session=session)
        await anext(result.stream_events())
        assert result.run_loop_task is not None
        runs.append(result.run_loop_task)
        await asyncio.to_thread(gate.wait)
        return [{"role": "assistant", "content": "enough"}]

    policy.add(reply(["half ", "an answer"]).insert(1, gate))
    with RolloutContext(policy.url):
        outcome = await backend_of(run).execute(ExecutionRequest(id="r-1", prompt=PROMPT))
        assert outcome.result.status == "success"
        assert await asyncio.to_thread(policy.requests[0].wait) == "disconnected"
        with pytest.raises(RolloutEndedError):
            await runs[0]
    assert len(policy.requests) == 1
