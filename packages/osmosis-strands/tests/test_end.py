"""An agent that runs in a thread and outlives its rollout."""

import asyncio
from typing import Any

import pytest

from osmosis_ai.rollout import (
    AgentWorkflow,
    AgentWorkflowContext,
    ExecutionRequest,
    LocalBackend,
    RolloutContext,
)
from osmosis_ai.rollout.integrations.agents.strands import (
    OsmosisRolloutModel,
    OsmosisStrandsAgent,
)
from osmosis_ai.rollout.policy import RolloutEndedError
from osmosis_ai.rollout.testing import Gate, ScriptedPolicy, reply


@pytest.mark.parametrize("ending", ["deadline", "cancel"])
async def test_an_agent_in_a_thread(policy: ScriptedPolicy, ending: str) -> None:
    """The thread's call ends with the rollout, and the policy gets no other."""
    gate, loop = Gate(), asyncio.get_running_loop()
    told: asyncio.Future[Exception] = loop.create_future()

    class Threaded(AgentWorkflow[Any]):
        async def run(self, ctx: AgentWorkflowContext[Any]) -> None:
            agent = OsmosisStrandsAgent(
                model=OsmosisRolloutModel(), messages=ctx.prompt, callback_handler=None
            )

            def call() -> None:
                try:
                    agent()
                except Exception as error:
                    loop.call_soon_threadsafe(told.set_result, error)

            await asyncio.to_thread(call)

    policy.add(reply(["half ", "an answer"]).insert(1, gate))
    backend = LocalBackend(workflow=Threaded)
    limit = 6.0 if ending == "deadline" else None
    prompt = [{"role": "user", "content": "2+2?"}]
    request = ExecutionRequest(id="r-1", prompt=prompt, agent_timeout_sec=limit)
    with RolloutContext(policy.url):
        executing = asyncio.create_task(backend.execute(request))
        await asyncio.to_thread(gate.wait)
        if ending == "cancel":
            backend.cancel_rollouts(all=True)
        outcome = await executing
        assert await asyncio.to_thread(policy.requests[0].wait) == "disconnected"
        error = await told
    assert isinstance(error.__cause__ or error, RolloutEndedError)
    assert outcome.result.sample is not None
    assert [message["role"] for message in outcome.result.sample.messages] == ["user"]
    assert len(policy.requests) == 1
