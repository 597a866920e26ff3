"""What agents of both frameworks leave in documents, through a server."""

import asyncio
import base64
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from agents import Agent as OpenAIAgent
from agents import (
    Runner,
    ToolOutputFileContent,
    ToolOutputImage,
    ToolOutputText,
    function_tool,
)
from strands import Agent as StrandsAgent
from strands import tool

from osmosis_ai.rollout import AgentWorkflow, AgentWorkflowContext, LocalBackend
from osmosis_ai.rollout.client import RolloutClient
from osmosis_ai.rollout.integrations.agents import openai_agents, strands
from osmosis_ai.rollout.server import create_rollout_server
from osmosis_ai.rollout.testing import Gate, ScriptedPolicy, ToolCall, reply
from osmosis_ai.rollout.trajectory import (
    Trajectory,
    convert_trajectory_to_messages,
    read_trajectory,
)


class WithStrands(AgentWorkflow):
    """Has a helper that is an agent on the same policy."""

    async def run(self, ctx: AgentWorkflowContext) -> None:
        main = strands.OsmosisStrandsAgent(
            model=strands.OsmosisRolloutModel(), messages=ctx.prompt, callback_handler=None
        )

        @tool
        async def ask(input: str) -> str:
            """Ask the helper."""
            helper = StrandsAgent(model=main.model, callback_handler=None, name="helper")
            return str(await helper.invoke_async(input))

        main.tool_registry.process_tools([ask])
        await main.invoke_async()


class WithOpenAIAgents(AgentWorkflow):
    """The same with the other framework."""

    async def run(self, ctx: AgentWorkflowContext) -> None:
        main = openai_agents.OsmosisAgent(name="main", model=openai_agents.OsmosisRolloutModel())
        helper = OpenAIAgent(name="helper", model=main.model)
        main.tools = [helper.as_tool("ask", "Ask the helper.")]
        prompt: Any = ctx.prompt
        await Runner.run(main, prompt, session=openai_agents.OsmosisMemorySession())


class Handoff(AgentWorkflow):
    """Has an agent that takes over."""

    async def run(self, ctx: AgentWorkflowContext) -> None:
        model = openai_agents.OsmosisRolloutModel()
        solver = openai_agents.OsmosisAgent(name="solver", instructions="Solve it.", model=model)
        main = openai_agents.OsmosisAgent(name="main", model=model, handoffs=[solver])
        prompt: Any = ctx.prompt
        await Runner.run(main, prompt, session=openai_agents.OsmosisMemorySession())


PNG, PDF = b"\x89PNG", b"%PDF"


class LookingWithStrands(AgentWorkflow):
    """Has a tool whose result is more than text."""

    async def run(self, ctx: AgentWorkflowContext) -> None:
        @tool
        def look() -> dict[str, Any]:
            """Look."""
            image = {"image": {"format": "png", "source": {"bytes": PNG}}}
            pdf = {"document": {"format": "pdf", "name": "a", "source": {"bytes": PDF}}}
            return {"status": "success", "content": [{"text": "see"}, image, pdf]}

        main = strands.OsmosisStrandsAgent(
            model=strands.OsmosisRolloutModel(),
            messages=ctx.prompt,
            tools=[look],
            callback_handler=None,
        )
        await main.invoke_async()


class LookingWithOpenAIAgents(AgentWorkflow):
    """The same with the other framework."""

    async def run(self, ctx: AgentWorkflowContext) -> None:
        @function_tool
        def look() -> list[Any]:
            """Look."""
            image, pdf = (base64.b64encode(data).decode() for data in (PNG, PDF))
            return [
                ToolOutputText(text="see"),
                ToolOutputImage(image_url=f"data:image/png;base64,{image}"),
                ToolOutputFileContent(
                    file_data=f"data:application/pdf;base64,{pdf}", filename="a.pdf"
                ),
            ]

        model = openai_agents.OsmosisRolloutModel()
        main = openai_agents.OsmosisAgent(name="main", model=model, tools=[look])
        prompt: Any = ctx.prompt
        await Runner.run(main, prompt, session=openai_agents.OsmosisMemorySession())


@asynccontextmanager
async def serving(workflow: type[AgentWorkflow]) -> AsyncGenerator[RolloutClient]:
    app = create_rollout_server(backend=LocalBackend(workflow=workflow))
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
    task = asyncio.create_task(server.serve())
    while not server.started:
        assert not task.done(), task.result()
        await asyncio.sleep(0.01)
    client = RolloutClient(url=f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}")
    try:
        yield client
    finally:
        await client.aclose()
        server.should_exit = True
        await task


PROMPT: list[dict[str, Any]] = [{"role": "user", "content": "What is 2+2?"}]
CALL = reply(tool_calls=[ToolCall("ask", {"input": "2+2?"}, "call_0")], token_ids=[1])


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the document of the rollout ends up."""
    monkeypatch.setenv("_OSMOSIS_ROLLOUT_ARTIFACT_ROOT", str(tmp_path))
    return tmp_path / "r-1" / "trajectory.json"


def helper_of(trajectory: Trajectory) -> Trajectory:
    """Return the one embedded document, which the first result refers to."""
    turn = trajectory.steps[1]
    assert turn.observation is not None
    assert turn.observation.results[0].subagent_trajectory_ref is not None
    assert turn.observation.results[0].subagent_trajectory_ref[0].trajectory_id == "r-1/1"
    assert trajectory.subagent_trajectories is not None
    [helper] = trajectory.subagent_trajectories
    assert (helper.trajectory_id, helper.agent.name) == ("r-1/1", "helper")
    return helper


@pytest.mark.parametrize("workflow", [WithStrands, WithOpenAIAgents])
async def test_the_helpers_conversation_is_embedded(
    saved: Path, workflow: type[AgentWorkflow]
) -> None:
    """With the tokens of its calls, and a reference on the result that it led to."""
    replies = CALL, reply("4", token_ids=[2]), reply("It is 4.", token_ids=[3])
    with ScriptedPolicy(*replies) as policy:
        async with serving(workflow) as client:
            result = await client.run_rollout(PROMPT, policy.url, "r-1")
    assert result.status == "success", result.err_message
    trajectory = read_trajectory(saved)
    assert trajectory.agent.tool_definitions is not None
    helper = helper_of(trajectory)
    assert [m["content"] for m in convert_trajectory_to_messages(helper)] == ["2+2?", "4"]
    tokens = [step.metrics and step.metrics.completion_token_ids for step in trajectory.steps]
    assert tokens == [None, [1], [3]]
    assert helper.steps[1].metrics is not None
    assert helper.steps[1].metrics.completion_token_ids == [2]


@pytest.mark.parametrize("workflow", [WithStrands, WithOpenAIAgents])
async def test_a_rollout_that_ends_inside_a_helper(
    saved: Path, workflow: type[AgentWorkflow]
) -> None:
    """The partial document has the helper's conversation too."""
    with ScriptedPolicy(CALL, reply("never").insert(0, Gate())) as policy:
        async with serving(workflow) as client:
            handle = client.run_rollout_async(PROMPT, policy.url, "r-1")
            await asyncio.to_thread(policy.wait_for_requests, 2)
            await client.cancel_rollout("r-1")
            result = await handle
    assert result.status == "cancelled"
    trajectory = read_trajectory(saved)
    assert trajectory.extra is not None
    assert trajectory.extra["osmosis"]["status"] == "cancelled"
    assert [m["content"] for m in convert_trajectory_to_messages(helper_of(trajectory))] == ["2+2?"]


async def test_agents_that_take_turns(saved: Path) -> None:
    """One transcript, with the agent's name on its steps."""
    over = reply(tool_calls=[ToolCall("transfer_to_solver")])
    with ScriptedPolicy(over, "4") as policy:
        async with serving(Handoff) as client:
            result = await client.run_rollout(PROMPT, policy.url, "r-1")
    assert result.status == "success", result.err_message
    trajectory = read_trajectory(saved)
    assert trajectory.subagent_trajectories is None
    names = [(step.source, (step.extra or {}).get("agent_name")) for step in trajectory.steps]
    assert names == [("user", None), ("agent", "main"), ("system", "solver"), ("agent", "solver")]


async def looked(saved: Path, workflow: type[AgentWorkflow], prompt: list[dict[str, Any]]) -> Any:
    """Return the steps of a rollout that uses its tool once."""
    call = reply("Let me look.", reasoning="hm", tool_calls=[ToolCall("look")])
    with ScriptedPolicy(call, "4") as policy:
        async with serving(workflow) as client:
            result = await client.run_rollout(prompt, policy.url, "r-1")
    assert result.status == "success", result.err_message
    return read_trajectory(saved).steps


@pytest.mark.parametrize("workflow", [LookingWithStrands, LookingWithOpenAIAgents])
async def test_b45_what_a_tool_gives_lies_beside_the_document(
    saved: Path, workflow: type[AgentWorkflow]
) -> None:
    """B45: an image is a part, a document a note; both refer to files with the bytes."""
    _, turn, _ = await looked(saved, workflow, PROMPT)
    text, image, note = turn.observation.results[0].content
    assert text.text == "see"
    assert (saved.parent / image.source.path).read_bytes() == PNG
    [attachment] = (saved.parent / "attachments").iterdir()
    assert attachment.read_bytes() == PDF
    assert f"<application/pdf, 4 bytes: attachments/{attachment.name}>" in note.text
    assert base64.b64encode(PDF).decode() not in str(turn)


@pytest.mark.parametrize("workflow", [LookingWithStrands, LookingWithOpenAIAgents])
async def test_b47_a_prompt_in_chat_form_is_whole_in_the_document(
    saved: Path, workflow: type[AgentWorkflow]
) -> None:
    """B47: images, calls without content, results in parts and reasoning, in both frameworks."""
    url = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
    function = {"name": "look", "arguments": '{"at": 1}'}
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    prompt: list[dict[str, Any]] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [parts[0], {"type": "image_url", "image_url": {"url": url}}]},
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "so",
            "tool_calls": [{"id": "c", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "c", "content": parts},
        {"role": "user", "content": "And?"},
    ]
    steps = await looked(saved, workflow, prompt)
    assert [step.source for step in steps] == ["system", "user", "agent", "user", "agent", "agent"]
    assert (saved.parent / steps[1].message[1].source.path).read_bytes() == PNG
    replayed, own = steps[2], steps[4]
    assert (replayed.message, replayed.reasoning_content) == ("", "so")
    assert replayed.tool_calls[0].arguments == {"at": 1}
    assert replayed.observation.results[0].source_call_id == "c"
    assert replayed.observation.results[0].content == "one\ntwo"
    assert (own.message, own.reasoning_content) == ("Let me look.", "hm")
