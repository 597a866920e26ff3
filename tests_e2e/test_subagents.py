"""An agent used as a tool, through a server into the document."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from strands import Agent, tool

from osmosis_ai.rollout import AgentWorkflow, AgentWorkflowContext, LocalBackend
from osmosis_ai.rollout.client import RolloutClient
from osmosis_ai.rollout.integrations.agents.strands import OsmosisRolloutModel, OsmosisStrandsAgent
from osmosis_ai.rollout.server import create_rollout_server
from osmosis_ai.rollout.testing import ScriptedPolicy, ToolCall, reply
from osmosis_ai.rollout.trajectory import convert_trajectory_to_messages, read_trajectory


class Delegating(AgentWorkflow):
    """Has a helper that is an agent on the same policy."""

    async def run(self, ctx: AgentWorkflowContext) -> None:
        main = OsmosisStrandsAgent(
            model=OsmosisRolloutModel(), messages=ctx.prompt, callback_handler=None
        )

        @tool
        async def ask(question: str) -> str:
            """Ask the helper."""
            helper = Agent(model=main.model, callback_handler=None, name="helper")
            return str(await helper.invoke_async(question))

        main.tool_registry.process_tools([ask])
        await main.invoke_async()


async def test_the_helpers_conversation_is_embedded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the tokens of its calls, and a reference on the result that it led to."""
    monkeypatch.setenv("_OSMOSIS_ROLLOUT_ARTIFACT_ROOT", str(tmp_path))
    call = reply(tool_calls=[ToolCall("ask", '{"question": "2+2?"}', "call_0")], token_ids=[1])
    replies = call, reply("4", token_ids=[2]), reply("It is 4.", token_ids=[3])
    app = create_rollout_server(backend=LocalBackend(workflow=Delegating))
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
    serving = asyncio.create_task(server.serve())
    while not server.started:
        assert not serving.done(), serving.result()
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    prompt: list[dict[str, Any]] = [{"role": "user", "content": "What is 2+2?"}]
    try:
        with ScriptedPolicy(*replies) as policy:
            client = RolloutClient(url=f"http://127.0.0.1:{port}")
            result = await client.run_rollout(prompt, policy.url, "r-1")
            await client.aclose()
    finally:
        server.should_exit = True
        await serving
    assert result.status == "success", result.err_message
    trajectory = read_trajectory(tmp_path / "r-1" / "trajectory.json")
    assert trajectory.agent.tool_definitions is not None
    turn = trajectory.steps[1]
    assert turn.observation is not None
    assert turn.observation.results[0].subagent_trajectory_ref is not None
    assert turn.observation.results[0].subagent_trajectory_ref[0].trajectory_id == "r-1/1"
    assert trajectory.subagent_trajectories is not None
    [helper] = trajectory.subagent_trajectories
    assert (helper.trajectory_id, helper.agent.name) == ("r-1/1", "helper")
    assert [m["content"] for m in convert_trajectory_to_messages(helper)] == ["2+2?", "4"]
    tokens = [step.metrics and step.metrics.completion_token_ids for step in trajectory.steps]
    assert tokens == [None, [1], [3]]
    assert helper.steps[1].metrics is not None
    assert helper.steps[1].metrics.completion_token_ids == [2]
