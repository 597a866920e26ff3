"""The public documentation's Strands samples, as written, on LocalBackend."""

import asyncio
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from strands import tool

from osmosis_ai.rollout import (
    AgentWorkflow,
    AgentWorkflowConfig,
    AgentWorkflowContext,
    ExecutionRequest,
    ExecutionResult,
    Grader,
    GraderContext,
    LocalBackend,
    RolloutContext,
    RolloutErrorCategory,
    RolloutStatus,
)
from osmosis_ai.rollout.integrations.agents.strands import (
    OsmosisRolloutModel,
    OsmosisStrandsAgent,
)
from osmosis_ai.rollout.testing import Gate, ScriptedPolicy, ToolCall, error_reply, reply

KEY = "sek-ret"
PROMPT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "2+2?"},
]


class SimpleStrandsWorkflow(AgentWorkflow):
    async def run(self, ctx: AgentWorkflowContext) -> None:
        agent = OsmosisStrandsAgent(
            name="simple-strands-agent",
            model=OsmosisRolloutModel(params={"temperature": 1.0}),
            messages=ctx.prompt,
            callback_handler=None,
        )
        await agent.invoke_async()


class TracingWorkflow(AgentWorkflow):
    async def run(self, ctx: AgentWorkflowContext) -> None:
        if ctx.artifacts_dir:
            (ctx.artifacts_dir / "run.log").write_text("started\n")
        ...


@tool(name="search")
def search_tool(query: str) -> str:
    """Search for information."""
    return f"results for {query}"


class ToolWorkflowConfig(AgentWorkflowConfig):
    name: str = "tool-workflow"
    model: Any = OsmosisRolloutModel(params={"temperature": 1.0})
    tools: Any = [search_tool]  # noqa: RUF012
    max_iterations: int = 8


tool_workflow_config = ToolWorkflowConfig()


class ToolWorkflow(AgentWorkflow[ToolWorkflowConfig]):
    async def run(self, ctx: AgentWorkflowContext[ToolWorkflowConfig]) -> None:
        config = ctx.config or ToolWorkflowConfig()

        agent = OsmosisStrandsAgent(
            name="search-agent",
            model=config.model,
            tools=config.tools,
            messages=ctx.prompt,
            callback_handler=None,
        )

        for _ in range(config.max_iterations):
            result = await agent.invoke_async()
            content = result.message.get("content", [])
            if not any("toolUse" in block for block in content):
                break


class ExactGrader(Grader):
    async def grade(self, ctx: GraderContext) -> None:
        assert ctx.sample is not None
        text = ctx.sample.messages[-1]["content"][0]["text"]
        ctx.set_reward(float(text == ctx.label))


async def execute(
    backend: LocalBackend, policy: ScriptedPolicy, *, rollout_id: str = "r-1", **fields: Any
) -> ExecutionResult:
    """Run one rollout as a server does, and return its result."""
    request = ExecutionRequest(id=rollout_id, prompt=PROMPT, label="4", **fields)
    with RolloutContext(policy.url, KEY, rollout_id):
        outcome = await backend.execute(request)
    return outcome.result


async def test_simple_strands_workflow(policy: ScriptedPolicy) -> None:
    """The agent answers, the registered conversation is the sample, the grader reads it."""
    policy.add("4")
    backend = LocalBackend(workflow=SimpleStrandsWorkflow, grader=ExactGrader)
    result = await execute(backend, policy)
    assert result.status is RolloutStatus.SUCCESS
    assert result.sample is not None
    assert result.sample.reward == 1.0
    assert [message["role"] for message in result.sample.messages] == [
        "system",
        "user",
        "assistant",
    ]
    assert result.sample.trajectory_messages is not None
    assert [dict(message) for message in result.sample.trajectory_messages[:2]] == PROMPT
    [request] = policy.requests
    assert request.messages == PROMPT
    assert request.body["temperature"] == 1.0


async def test_tool_workflow(policy: ScriptedPolicy) -> None:
    """The module's config holds the placeholder and the tools; each rollout gets a copy."""
    backend = LocalBackend(
        workflow=ToolWorkflow, workflow_config=tool_workflow_config, grader=ExactGrader
    )
    for number in (1, 2):
        policy.add(reply(tool_calls=[ToolCall("search", {"query": "sum"})]), "4")
        result = await execute(backend, policy, rollout_id=f"r-{number}")
        assert result.status is RolloutStatus.SUCCESS, result.err_message
        assert result.sample is not None
        assert result.sample.reward == 1.0
        assert len(result.sample.messages) == 5
    assert policy.requests[3].messages[-1]["content"] == "results for sum"
    assert type(tool_workflow_config.model) is OsmosisRolloutModel


async def test_tracing_workflow(
    policy: ScriptedPolicy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files go to the rollout's directory; no agent, no sample."""
    monkeypatch.setenv("_OSMOSIS_ROLLOUT_ARTIFACT_ROOT", str(tmp_path))
    result = await execute(LocalBackend(workflow=TracingWorkflow), policy)
    assert result.status is RolloutStatus.SUCCESS
    assert result.sample is None
    assert (tmp_path / "r-1" / "artifacts" / "run.log").read_text() == "started\n"


async def test_an_outage_is_told_from_an_error_of_the_agent(policy: ScriptedPolicy) -> None:
    """B35: the category names the endpoint, at whatever depth Strands wrapped the failure."""
    policy.add(
        error_reply(500, "burning"),
        reply(tool_calls=[ToolCall("search", {"query": "sum"})]),
        error_reply(500, "burning"),
        error_reply(400, "no such parameter"),
    )
    backend = LocalBackend(workflow=ToolWorkflow, workflow_config=tool_workflow_config)
    results = [await execute(backend, policy, rollout_id=f"r-{number}") for number in range(3)]
    assert [result.err_category for result in results] == [
        RolloutErrorCategory.HTTP_ERROR,
        RolloutErrorCategory.HTTP_ERROR,
        RolloutErrorCategory.AGENT_ERROR,
    ]
    partial = results[1].sample
    assert partial is not None
    assert len(partial.messages) == 4
    assert partial.reward is None
    assert "no such parameter" in (results[2].err_message or "")


async def test_deadline_in_the_middle_of_a_stream(policy: ScriptedPolicy) -> None:
    """The rollout ends as a timeout, and the connection to the policy closes."""
    policy.add(reply(["half", " an answer"]).insert(2, Gate()))
    backend = LocalBackend(workflow=SimpleStrandsWorkflow)
    result = await execute(backend, policy, agent_timeout_sec=3.0)
    assert result.err_category is RolloutErrorCategory.TIMEOUT
    assert await asyncio.to_thread(policy.requests[0].wait) == "disconnected"
    assert result.sample is not None
    assert [message["role"] for message in result.sample.messages] == ["system", "user"]


def test_the_readme_runs() -> None:
    """The README's example is a whole program that prints what it says."""
    readme = Path(__file__).parent.parent / "README.md"
    [program] = re.findall(r"```python\n(.*?)```", readme.read_text(encoding="utf-8"), re.DOTALL)
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout == "success 1.0\n"
