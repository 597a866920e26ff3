"""Other projects' data through a real server into documents; the NOTICE in data/ names them."""

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import pytest

from osmosis_ai.rollout import (
    AgentWorkflow,
    AgentWorkflowConfig,
    AgentWorkflowContext,
    LocalBackend,
    RolloutSample,
    SampleSource,
    get_rollout_context,
)
from osmosis_ai.rollout.artifacts import list_artifacts
from osmosis_ai.rollout.policy import PolicyClient
from osmosis_ai.rollout.server import create_rollout_server
from osmosis_ai.rollout.testing import ScriptedPolicy, ToolCall, reply
from osmosis_ai.rollout.trajectory import (
    ContentPart,
    ImageSource,
    Trajectory,
    convert_trajectory_to_messages,
    read_trajectory,
)

from .harness import serving

DATA = Path(__file__).parents[1] / "data"
PNG = b"\x89PNG\r\n\x1a\n"


class Told(SampleSource):
    """Tells a list of messages, as far as it has got."""

    def __init__(self, messages: list[dict[str, Any]]) -> None:
        self.messages = messages

    async def get_sample(self) -> RolloutSample:
        return RolloutSample(messages=self.messages)


class Conversing(AgentWorkflow[AgentWorkflowConfig]):
    """Asks the policy and answers its tool calls, until it is done or told to go wrong."""

    sleeping = asyncio.Event()

    async def run(self, ctx: AgentWorkflowContext[AgentWorkflowConfig]) -> None:
        told = Told([*ctx.prompt])
        context = get_rollout_context()
        assert context is not None
        context.set_sample_source(told)
        while True:
            answer = await PolicyClient().complete(told.messages)
            told.messages.append(answer.message)
            for call in answer.tool_calls:
                result = {"role": "tool", "tool_call_id": call["id"], "content": "a\udcb2"}
                told.messages.append(result)
            if not answer.tool_calls:
                return
            if ctx.metadata == {"then": "raise"}:
                raise ConnectionResetError
            if ctx.metadata == {"then": "sleep"}:
                self.sleeping.set()
                await asyncio.sleep(60)


async def rolled_out(
    prompt: list[dict[str, Any]], *replies: Any, root: Path, cancel: bool = False, **fields: Any
) -> tuple[Trajectory, ScriptedPolicy]:
    """Run a rollout through a server and return its document, and the policy that was asked."""
    Conversing.sleeping = asyncio.Event()
    app = create_rollout_server(backend=LocalBackend(workflow=Conversing))
    with ScriptedPolicy(*replies) as policy:
        async with serving(app) as client:
            body = {"initial_messages": prompt, "chat_completions_url": policy.url, **fields}
            await client.start("r-1", **body)
            if cancel:
                await Conversing.sleeping.wait()
                await client.http.post("/rollout/cancel", json={"ids": ["r-1"]})
            await client.result("r-1")
    return read_trajectory(root / "r-1" / "trajectory.json"), policy


def facts(trajectory: Trajectory) -> dict[str, Any]:
    assert trajectory.extra is not None
    known: dict[str, Any] = trajectory.extra["osmosis"]
    return known


@pytest.mark.parametrize("row", range(5))
async def test_f12_an_empty_system_message_is_a_step(row: int, artifact_root: Path) -> None:
    """It reaches the policy as it is, and the document too."""
    lines = (DATA / "prompts_empty_system.jsonl").read_text("utf-8").split("\n")
    prompt = json.loads(lines[row])["responses_create_params"]["input"]
    trajectory, policy = await rolled_out(prompt, reply("done"), root=artifact_root)
    assert policy.requests[0].messages == prompt
    assert prompt[0] == {"role": "system", "content": ""}
    assert [(s.source, s.message) for s in trajectory.steps] == [
        ("system", ""),
        ("user", prompt[1]["content"]),
        ("agent", "done"),
    ]


async def test_f06_images_of_a_document_go_through_a_rollout(
    tmp_path: Path, artifact_root: Path
) -> None:
    """Read into messages, sent to the policy, and archived beside the new document."""
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "workspace.png").write_bytes(PNG)
    foreign = read_trajectory(DATA / "atif_multimodal.json")
    prompt = convert_trajectory_to_messages(foreign, folder=tmp_path)
    trajectory, policy = await rolled_out(prompt, reply("done"), root=artifact_root)
    assert policy.requests[0].messages[0]["content"][1]["image_url"]["url"].startswith("data:")
    message = trajectory.steps[0].message
    assert isinstance(message, list)
    assert isinstance(message[1].source, ImageSource)
    assert (artifact_root / "r-1" / message[1].source.path).read_bytes() == PNG
    # The turns that came in with the prompt are nobody's calls.
    assert [step.metrics for step in trajectory.steps] == [None] * len(trajectory.steps)
    assert trajectory.steps[1].reasoning_content == foreign.steps[1].reasoning_content


async def test_f05_an_image_in_a_tools_result(tmp_path: Path, artifact_root: Path) -> None:
    """It is a part of the result in the document that our converter writes of it."""
    document = json.loads((DATA / "atif_cleanup.json").read_bytes())
    document["steps"][2]["tool_calls"][0]["arguments"] = {"_raw": '["fast"]'}
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "result.png").write_bytes(PNG)
    prompt = convert_trajectory_to_messages(Trajectory.model_validate(document), folder=tmp_path)
    trajectory, _ = await rolled_out(prompt, reply("done"), root=artifact_root)
    step = trajectory.steps[2]
    assert step.tool_calls is not None
    assert step.tool_calls[0].arguments == {"_raw": '["fast"]'}
    assert step.observation is not None
    linked, unlinked = step.observation.results
    assert isinstance(linked.content, list)
    assert isinstance(linked.content[1], ContentPart)
    assert linked.content[1].type == "image"
    assert (linked.source_call_id, unlinked.source_call_id) == ("call-check", None)


async def test_b37_b38_tokens_and_cut_arguments_are_on_their_calls_steps(
    artifact_root: Path,
) -> None:
    """The workflow keeps plain messages only; the policy's truth is in the document anyway."""
    odd = reply(
        tool_calls=[ToolCall("f", '["x"]', "a"), ToolCall("f", '{"q": "ab', "b")],
        finish_reason="length",
        prompt_token_ids=[1, 2],
        token_ids=[3],
        usage={"prompt_tokens": 2, "completion_tokens": 1},
    )
    last = reply("4", prompt_token_ids=[1, 2, 3, 4], token_ids=[5, 6], usage={"prompt_tokens": 4})
    question = {"role": "user", "content": "2+2?"}
    trajectory, _ = await rolled_out([question], odd, last, root=artifact_root)
    _, first, second = trajectory.steps
    assert first.tool_calls is not None
    assert [c.arguments for c in first.tool_calls] == [{"_raw": '["x"]'}, {"_raw": '{"q": "ab'}]
    assert first.extra == {"finish_reason": "length", "truncated": True}
    assert first.metrics is not None
    assert first.metrics.prompt_token_ids == [1, 2]
    assert second.metrics is not None
    assert second.metrics.completion_token_ids == [5, 6]
    assert second.extra == {"finish_reason": "stop"}
    assert facts(trajectory)["token_continuity"]["prompts_extend"] is True
    assert trajectory.final_metrics is not None
    assert trajectory.final_metrics.total_prompt_tokens == 6
    # B23: what the tool printed is readable.
    assert first.observation is not None
    assert first.observation.results[0].content == "a\ufffd"


async def test_b53_ids_that_are_used_again_missing_or_unknown(artifact_root: Path) -> None:
    """Each result finds its call, or says that it has none; the steps and their number agree."""
    prompt: list[dict[str, Any]] = [
        {"role": "tool", "tool_call_id": "x", "content": "early"},
        {"role": "user", "content": "2+2?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": 5, "function": {"name": "f"}}],
        },
        {"role": "tool", "tool_call_id": 5, "content": "five"},
        {"role": "tool", "tool_call_id": "unknown", "content": "whose?"},
        {"role": "user", "content": "And?"},
    ]
    twice = reply(tool_calls=[ToolCall("f", "{}", "x"), ToolCall("g", "{}", "x")])
    trajectory, _ = await rolled_out(prompt, twice, reply("4"), root=artifact_root)
    assert [step.step_id for step in trajectory.steps] == [1, 2, 3, 4, 5, 6]
    assert trajectory.final_metrics is not None
    assert trajectory.final_metrics.total_steps == 6
    linked = [
        [(result.source_call_id, result.content) for result in step.observation.results]
        for step in trajectory.steps
        if step.observation
    ]
    assert linked == [
        [(None, "early")],
        [("5", "five"), (None, "whose?")],
        [("x", "a\ufffd"), ("x_2", "a\ufffd")],
    ]


async def test_b45_documents_of_a_prompt_lie_beside_the_trajectory(artifact_root: Path) -> None:
    """The policy gets their bytes, the document a note of where they are."""
    data = base64.b64encode(b"%PDF-1.4").decode()
    file = {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{data}"}
    prompt: list[dict[str, Any]] = [
        {
            "role": "user",
            "content": [{"type": "text", "text": "Read."}, {"type": "file", "file": file}],
        }
    ]
    trajectory, policy = await rolled_out(prompt, reply("done"), root=artifact_root)
    assert policy.requests[0].messages == prompt
    listed = {str(a.path): a for a in list_artifacts(artifact_root, "r-1")}
    [path] = [path for path in listed if path.startswith("attachments/")]
    assert (listed[path].media_type, listed[path].size) == ("application/pdf", 8)
    assert f"<application/pdf, 8 bytes: {path}>" in str(trajectory.steps[0].message)
    assert data not in (artifact_root / "r-1" / "trajectory.json").read_text()


@pytest.mark.parametrize(
    ("fields", "status", "category"),
    [
        ({"metadata": {"then": "raise"}}, "failure", "agent_error"),
        ({"metadata": {"then": "sleep"}, "agent_timeout_sec": 2}, "failure", "timeout"),
        ({"metadata": {"then": "sleep"}, "cancel": True}, "cancelled", None),
    ],
    ids=["failed", "timed out", "cancelled"],
)
async def test_partial_transcripts(
    fields: dict[str, Any], status: str, category: str | None, artifact_root: Path
) -> None:
    """What was reached is archived with how it ended, the tokens of its calls included."""
    call = reply(tool_calls=[ToolCall("f", "{}", "a")], token_ids=[3], one_chunk=True)
    question = {"role": "user", "content": "2+2?"}
    trajectory, _ = await rolled_out([question], call, root=artifact_root, **fields)
    assert facts(trajectory)["status"] == status
    assert facts(trajectory).get("err_category") == category
    assert "reward" not in facts(trajectory)
    assert trajectory.steps[1].metrics is not None
    assert trajectory.steps[1].metrics.completion_token_ids == [3]
