"""The public documentation's OpenAI Agents sample, as written, on LocalBackend."""

import asyncio
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest
from agents import ModelSettings, Runner, function_tool

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
from osmosis_ai.rollout.agent_workflow import ToolError
from osmosis_ai.rollout.integrations.agents.openai_agents import (
    OsmosisAgent,
    OsmosisMemorySession,
    OsmosisRolloutModel,
)
from osmosis_ai.rollout.testing import Gate, ScriptedPolicy, ToolCall, error_reply, reply

KEY = "sek-ret"
PROMPT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "2+2?"},
]
INSTRUCTIONS = {"role": "system", "content": "Answer the user's request clearly."}


class SimpleOpenAIWorkflow(AgentWorkflow):
    async def run(self, ctx: AgentWorkflowContext) -> None:
        agent = OsmosisAgent(
            name="simple-openai-agent",
            instructions="Answer the user's request clearly.",
            model=OsmosisRolloutModel(),
            model_settings=ModelSettings(temperature=1.0, max_tokens=4096),
        )
        session = OsmosisMemorySession()

        await Runner.run(
            agent,
            ctx.prompt,  # pyright: ignore[reportArgumentType]
            session=session,
        )


class StreamedWorkflow(AgentWorkflow):
    """The same, streamed."""

    async def run(self, ctx: AgentWorkflowContext) -> None:
        agent = OsmosisAgent(name="streamed", model=OsmosisRolloutModel())
        prompt: Any = ctx.prompt
        run = Runner.run_streamed(agent, prompt, session=OsmosisMemorySession())
        async for _ in run.stream_events():
            pass


@function_tool
def search(query: str) -> str:
    """Search for information."""
    return f"results for {query}"


class ToolWorkflowConfig(AgentWorkflowConfig):
    name: str = "tool-workflow"
    model: Any = OsmosisRolloutModel(params={"temperature": 1.0})
    tools: Any = [search]  # noqa: RUF012


class ToolWorkflow(AgentWorkflow[ToolWorkflowConfig]):
    """A placeholder and tools in the config of the module."""

    async def run(self, ctx: AgentWorkflowContext[ToolWorkflowConfig]) -> None:
        config = ctx.config or ToolWorkflowConfig()
        agent = OsmosisAgent(name="search-agent", model=config.model, tools=config.tools)
        prompt: Any = ctx.prompt
        await Runner.run(agent, prompt, session=OsmosisMemorySession())


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


async def test_simple_openai_workflow(policy: ScriptedPolicy) -> None:
    """The agent answers, the session's conversation is the sample, the grader reads it."""
    policy.add("4")
    backend = LocalBackend(workflow=SimpleOpenAIWorkflow, grader=ExactGrader)
    result = await execute(backend, policy)
    assert result.status is RolloutStatus.SUCCESS, result.err_message
    assert result.sample is not None
    assert result.sample.reward == 1.0
    assert [message["role"] for message in result.sample.messages] == [
        "system",
        "user",
        "assistant",
    ]
    assert result.sample.trajectory_messages is not None
    assert [dict(message) for message in result.sample.trajectory_messages[:3]] == [
        INSTRUCTIONS,
        *PROMPT,
    ]
    [request] = policy.requests
    assert request.messages == [INSTRUCTIONS, *PROMPT]
    assert (request.body["temperature"], request.body["max_tokens"]) == (1.0, 4096)


async def test_tools_in_the_config_of_the_module(policy: ScriptedPolicy) -> None:
    """The module's config holds the placeholder and the tools; each rollout gets a copy."""
    config = ToolWorkflowConfig()
    backend = LocalBackend(workflow=ToolWorkflow, workflow_config=config, grader=ExactGrader)
    for number in (1, 2):
        policy.add(reply(tool_calls=[ToolCall("search", {"query": "sum"})]), "4")
        result = await execute(backend, policy, rollout_id=f"r-{number}")
        assert result.status is RolloutStatus.SUCCESS, result.err_message
        assert result.sample is not None
        assert result.sample.reward == 1.0
        assert len(result.sample.messages) == 5
    assert policy.requests[3].messages[-1]["content"] == "results for sum"
    assert type(config.model) is OsmosisRolloutModel


async def test_an_outage_is_told_from_an_error_of_the_agent(policy: ScriptedPolicy) -> None:
    """B35: the category names the endpoint; the partial sample has no reward."""
    policy.add(
        error_reply(500, "burning"),
        reply(tool_calls=[ToolCall("search", {"query": "sum"})]),
        error_reply(500, "burning"),
        error_reply(400, "no such parameter"),
    )
    backend = LocalBackend(workflow=ToolWorkflow, workflow_config=ToolWorkflowConfig())
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


async def test_b50_unknown_tool(policy: ScriptedPolicy) -> None:
    """B50: the rollout fails, and the conversation up to the call is kept for the archive."""
    policy.add(
        reply(tool_calls=[ToolCall("search", {"query": "sum"})]),
        reply("Let me see.", tool_calls=[ToolCall("searchh", {"query": "sum"})]),
    )
    backend = LocalBackend(workflow=ToolWorkflow, workflow_config=ToolWorkflowConfig())
    result = await execute(backend, policy)
    assert result.status is RolloutStatus.FAILURE
    assert result.err_category is RolloutErrorCategory.AGENT_ERROR
    assert "searchh" in (result.err_message or "")
    assert result.sample is not None
    assert result.sample.messages[-1]["name"] == "searchh"
    assert result.sample.trajectory_messages is not None
    roles = [message["role"] for message in result.sample.trajectory_messages]
    assert roles == ["system", "user", "assistant", "tool", "assistant"]
    last = result.sample.trajectory_messages[-1]
    assert (last["content"], last["tool_calls"][0]["function"]["name"]) == (
        "Let me see.",
        "searchh",
    )


@pytest.mark.parametrize(
    ("error", "origin"), [(ToolError("search"), "tool"), (OSError("no disk"), "workflow")]
)
async def test_a_tool_whose_failure_ends_the_rollout(
    policy: ScriptedPolicy, error: Exception, origin: str
) -> None:
    """The framework does not say that it was a tool; one that raises `ToolError` does."""

    @function_tool(failure_error_function=None)
    def search() -> str:
        """Fail."""
        raise error

    class Failing(AgentWorkflow[Any]):
        async def run(self, ctx: AgentWorkflowContext[Any]) -> None:
            agent = OsmosisAgent(name="a", model=OsmosisRolloutModel(), tools=[search])
            await Runner.run(agent, cast("Any", ctx.prompt), session=OsmosisMemorySession())

    policy.add(reply(tool_calls=[ToolCall("search")]))
    result = await execute(LocalBackend(workflow=Failing), policy)
    assert result.origin == origin
    assert str(error) in (result.err_message or "")


async def test_deadline_in_the_middle_of_a_stream(policy: ScriptedPolicy) -> None:
    """The rollout ends as a timeout, and the connection to the policy closes."""
    for number, workflow in enumerate((SimpleOpenAIWorkflow, StreamedWorkflow)):
        policy.add(reply(["half", " an answer"]).insert(2, Gate()))
        backend = LocalBackend(workflow=workflow)
        result = await execute(backend, policy, rollout_id=f"r-{number}", agent_timeout_sec=3.0)
        assert result.err_category is RolloutErrorCategory.TIMEOUT
        assert await asyncio.to_thread(policy.requests[-1].wait) == "disconnected"
        assert result.sample is not None
        assert [message["role"] for message in result.sample.messages] == ["system", "user"]


def test_the_readme_runs() -> None:
    """The README's example is a whole program that prints what it says."""
    readme = Path(__file__).parent.parent / "README.md"
    programs = re.findall(r"```python\n(.*?)```", readme.read_text(encoding="utf-8"), re.DOTALL)
    run = subprocess.run(
        [sys.executable, "-c", programs[0]], capture_output=True, text=True, check=True
    )
    assert run.stdout == "success 1.0\n"
