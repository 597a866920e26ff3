"""B42: both adapters in one environment, and in one process."""

import asyncio
from typing import Any

from agents import Runner
from agents import function_tool as openai_tool
from strands import tool as strands_tool

from osmosis_ai.rollout import (
    AgentWorkflow,
    AgentWorkflowContext,
    ExecutionRequest,
    ExecutionResult,
    LocalBackend,
    RolloutContext,
    RolloutStatus,
)
from osmosis_ai.rollout.integrations.agents import openai_agents, strands
from osmosis_ai.rollout.testing import PolicyRequest, Reply, ScriptedPolicy, ToolCall, reply


class WithStrands(AgentWorkflow):
    async def run(self, ctx: AgentWorkflowContext) -> None:
        @strands_tool
        def whoami() -> str:
            """Tell which framework this is."""
            return "strands"

        agent = strands.OsmosisStrandsAgent(
            model=strands.OsmosisRolloutModel(),
            messages=ctx.prompt,
            tools=[whoami],
            callback_handler=None,
        )
        await agent.invoke_async()


class WithOpenAIAgents(AgentWorkflow):
    async def run(self, ctx: AgentWorkflowContext) -> None:
        @openai_tool
        def whoami() -> str:
            """Tell which framework this is."""
            return "openai-agents"

        agent = openai_agents.OsmosisAgent(
            name="a", model=openai_agents.OsmosisRolloutModel(), tools=[whoami]
        )
        prompt: Any = ctx.prompt
        await Runner.run(agent, prompt, session=openai_agents.OsmosisMemorySession())


def answer(request: PolicyRequest) -> Reply:
    """Ask who it is, and repeat that beside the rollout's key."""
    last = request.messages[-1]
    if last["role"] != "tool":
        return reply(tool_calls=[ToolCall("whoami")])
    return reply(f"{last['content']} {request.headers['authorization']}")


async def execute(workflow: type[AgentWorkflow], url: str, rollout_id: str) -> ExecutionResult:
    request = ExecutionRequest(id=rollout_id, prompt=[{"role": "user", "content": "who?"}])
    with RolloutContext(url, f"key-{rollout_id}", rollout_id):
        outcome = await LocalBackend(workflow=workflow).execute(request)
    return outcome.result


def test_one_process_runs_both() -> None:
    """Their rollouts run at the same time, and each has its own framework, URL and key."""

    async def main(url: str) -> list[ExecutionResult]:
        both = (WithStrands, WithOpenAIAgents)
        runs = [execute(both[number % 2], url, f"r-{number}") for number in range(20)]
        return await asyncio.gather(*runs)

    with ScriptedPolicy(respond=answer) as policy:
        results = asyncio.run(main(policy.url))
    for number, result in enumerate(results):
        assert result.status is RolloutStatus.SUCCESS, result.err_message
        assert result.sample is not None
        assert result.sample.trajectory_messages is not None
        framework = ("strands", "openai-agents")[number % 2]
        said = result.sample.trajectory_messages[-1]["content"]
        assert said == f"{framework} Bearer key-r-{number}"
