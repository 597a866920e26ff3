"""Conversations in every form that datasets and agents have, on their way to the policy."""

import copy
import json
from typing import Any

import pytest
from agents import Runner, UserError, function_tool
from hypothesis import given, settings
from hypothesis import strategies as st

from osmosis_ai.rollout import RolloutContext, RolloutSample
from osmosis_ai.rollout.integrations.agents.openai_agents import (
    OsmosisAgent,
    OsmosisMemorySession,
    OsmosisRolloutModel,
)
from osmosis_ai.rollout.integrations.agents.openai_agents._chat import to_chat
from osmosis_ai.rollout.integrations.agents.openai_agents._turns import Request, Turn, Turns
from osmosis_ai.rollout.policy import PolicyError, PolicyReply
from osmosis_ai.rollout.testing import (
    ScriptedPolicy,
    ToolCall,
    chunk,
    error_reply,
    reply,
    stream_reply,
)

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}


def call(name: str, arguments: str, call_id: str = "call_0") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def build(**kwargs: Any) -> OsmosisAgent[Any]:
    return OsmosisAgent(**{"name": "a", "model": OsmosisRolloutModel(), **kwargs})


async def sample_of(rollout: RolloutContext) -> RolloutSample:
    sample = await rollout.get_sample()
    assert sample is not None
    return sample


PROMPTS: dict[str, list[dict[str, Any]]] = {
    "several-systems": [
        {"role": "system", "content": "Be brief."},
        {"role": "system", "content": ""},
        {"role": "user", "content": "hi"},
        {"role": "system", "content": "In the middle."},
        {"role": "user", "content": "2+2?"},
    ],
    "developer": [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "2+2?"},
    ],
    "names": [
        {"role": "user", "name": "bob", "content": "2+2?"},
        {"role": "assistant", "name": "ann", "content": "Why?"},
        {"role": "user", "name": "bob", "content": "Because."},
    ],
    "tool-calls": [
        {"role": "user", "content": "2+2?"},
        {"role": "assistant", "content": None, "tool_calls": [call("add", '{"a": 2,"b":2}')]},
        {"role": "tool", "tool_call_id": "call_0", "name": "add", "content": "4"},
        {"role": "assistant", "content": "", "tool_calls": [call("add", "{}"), call("x", "")]},
        {"role": "tool", "tool_call_id": "call_0", "content": [{"type": "text", "text": "4"}]},
        {"role": "tool", "tool_call_id": "call_1", "content": ""},
        {"role": "user", "content": "Sure?"},
    ],
    "content-that-is-hardly-there": [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None},
        {"role": "assistant", "tool_calls": [call("add", "{}")]},
        {"role": "tool", "tool_call_id": "call_0", "content": None},
        {"role": "assistant", "content": [], "tool_calls": [call("add", "{}")]},
        {"role": "assistant", "content": [{"type": "text", "text": ""}]},
        {"role": "user", "content": "2+2?"},
    ],
    "images-and-audio": [
        {"role": "user", "content": [{"type": "text", "text": "What is it?"}, IMAGE]},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
        {
            "role": "user",
            "content": [{"type": "input_audio", "input_audio": {"data": "AAA=", "format": "wav"}}],
        },
    ],
    "more-than-the-standard-knows": [
        {"role": "user", "content": "2+2?", "metadata": {"row": 1}},
        {"role": "assistant", "content": "4", "reasoning_content": "2 and 2", "refusal": None},
        {"role": "observation", "content": "It rains."},
        {"role": "function", "name": "f", "content": "x"},
        {"role": "user", "content": "And now?"},
    ],
}


@pytest.mark.parametrize("prompt", PROMPTS.values(), ids=PROMPTS)
@pytest.mark.parametrize("streamed", [False, True], ids=["run", "run_streamed"])
async def test_b48_prompts_reach_the_policy_unchanged(
    policy: ScriptedPolicy, rollout: RolloutContext, prompt: Any, streamed: bool
) -> None:
    """B40, B41, B48: whatever a dataset holds is what the policy reads and what is kept."""
    policy.add("4")
    before = copy.deepcopy(prompt)
    with rollout:
        session = OsmosisMemorySession()
        if streamed:
            result = Runner.run_streamed(build(), prompt, session=session)
            async for _ in result.stream_events():
                pass
        else:
            await Runner.run(build(), prompt, session=session)
        sample = await sample_of(rollout)
    assert prompt == before
    assert policy.requests[0].messages == before
    assert sample.messages[:-1] == before
    assert sample.trajectory_messages is not None
    assert sample.trajectory_messages[:-1] == before


async def test_prompts_stay_themselves_in_later_runs(
    policy: ScriptedPolicy, rollout: RolloutContext
) -> None:
    """A second run on the session sends the history as the policy read it in the first."""
    policy.add("4", "Yes.")
    prompt: Any = PROMPTS["tool-calls"]
    with rollout:
        agent, session = build(instructions="Count."), OsmosisMemorySession()
        await Runner.run(agent, prompt, session=session)
        await Runner.run(agent, "Really?", session=session)
    assert policy.requests[1].messages == [
        {"role": "system", "content": "Count."},
        *prompt,
        {"role": "assistant", "content": "4"},
        {"role": "user", "content": "Really?"},
    ]


async def test_b41_a_role_that_the_endpoint_refuses(
    policy: ScriptedPolicy, rollout: RolloutContext
) -> None:
    """B41: roles are not renamed for anybody; the 400 is the run's error."""
    policy.add(error_reply(400, "Unexpected message role."))
    prompt: Any = PROMPTS["developer"]
    with rollout, pytest.raises(PolicyError, match="Unexpected message role"):
        await Runner.run(build(), prompt, session=OsmosisMemorySession())


async def test_the_policy_reads_its_own_words(
    policy: ScriptedPolicy, rollout: RolloutContext
) -> None:
    """Spaces in arguments, reasoning, unknown keys and nulls come back as they were."""

    @function_tool
    def add(a: int, b: int = 0) -> str:
        """Add."""
        return str(a + b)

    odd = {"id": "q", "index": 0, "function": {"name": "add", "arguments": ' {"a":1 , "b" : 1}'}}
    policy.add(
        stream_reply(
            chunk(reasoning_content="hm", thought_signature="s"),
            chunk(content="I say "),
            chunk(content="add.", tool_calls=[{**odd, "extra_content": {"google": 1}}]),
            chunk(finish_reason="tool_calls"),
        ),
        reply(tool_calls=[ToolCall("add", '{"a": 1}')]),
        "2",
    )
    with rollout:
        agent = build(tools=[add])
        await Runner.run(agent, "1+1?", session=OsmosisMemorySession())
    sent = [one for one in policy.requests[2].messages if one["role"] == "assistant"]
    assert sent == [
        {
            "role": "assistant",
            "content": "I say add.",
            "reasoning_content": "hm",
            "thought_signature": "s",
            "tool_calls": [
                {
                    "id": "q",
                    "type": "function",
                    "function": odd["function"],
                    "extra_content": {"google": 1},
                }
            ],
        },
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [call("add", '{"a": 1}')],
        },
    ]


RESPONSES_ITEMS: list[dict[str, Any]] = [
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "2+2?"}]},
    {"role": "user", "content": [{"type": "input_image", "image_url": "https://x.test/a.png"}]},
    {"id": "rs_1", "type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
    {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "Let me see.", "annotations": []}],
    },
    {"type": "function_call", "call_id": "c", "name": "add", "arguments": '{"a": 2}'},
    {"type": "function_call_output", "call_id": "c", "output": "4"},
]


async def test_responses_items_are_translated(
    policy: ScriptedPolicy, rollout: RolloutContext
) -> None:
    """Input in the SDK's own form works as well, and its reasoning is not lost."""
    policy.add("4")
    items: Any = RESPONSES_ITEMS
    with rollout:
        await Runner.run(build(), items, session=OsmosisMemorySession())
        sample = await sample_of(rollout)
    messages = policy.requests[0].messages
    image = messages[1]["content"][0]
    assert (image["type"], image["image_url"]["url"]) == ("image_url", "https://x.test/a.png")
    assert [messages[0], *messages[2:]] == [
        {"role": "user", "content": [{"type": "text", "text": "2+2?"}]},
        {
            "role": "assistant",
            "content": "Let me see.",
            "reasoning_content": "hm",
            "tool_calls": [call("add", '{"a": 2}', "c")],
        },
        {"role": "tool", "tool_call_id": "c", "content": "4"},
    ]
    assert sample.messages[:-1] == items
    assert sample.trajectory_messages is not None
    assert sample.trajectory_messages[:-1] == messages


async def test_items_that_have_no_chat_form(
    policy: ScriptedPolicy, rollout: RolloutContext, caplog: pytest.LogCaptureFixture
) -> None:
    """They are an error for the run; the sample survives without a trajectory."""
    items: Any = [{"type": "item_reference", "id": "msg_1"}]
    with rollout:
        with pytest.raises(UserError):
            await Runner.run(build(), items, session=OsmosisMemorySession())
        sample = await sample_of(rollout)
    assert policy.requests == []
    assert sample.messages == items
    assert sample.trajectory_messages is None
    assert "no trajectory will be saved" in caplog.text


async def test_surrogates_and_odd_values_pass(
    policy: ScriptedPolicy, rollout: RolloutContext
) -> None:
    """A tool's odd output stays in the sample, and reaches the policy made harmless."""

    @function_tool
    def odd() -> str:
        """Return what no UTF-8 can hold."""
        return "a\ud83d\x00"

    policy.add(reply(tool_calls=[ToolCall("odd")]), "ok")
    with rollout:
        await Runner.run(build(tools=[odd]), "go", session=OsmosisMemorySession())
        sample = await sample_of(rollout)
    assert policy.requests[1].messages[-1]["content"] == "a\ufffd\x00"
    assert sample.messages[2]["output"] == "a\ud83d\x00"


texts = st.text(max_size=8)
call_ids = st.sampled_from(["call_0", "call_1", "x"])
tool_calls = st.builds(call, texts.filter(bool), texts | st.just('{"a": 1}'), call_ids)


@st.composite
def replies(draw: st.DrawFn) -> PolicyReply:
    """Any whole reply of a policy."""
    message: dict[str, Any] = {"role": "assistant", "content": draw(st.none() | texts)}
    if calls := draw(st.lists(tool_calls, max_size=3)):
        message["tool_calls"] = calls
    elif message["content"] is None:
        message["content"] = ""
    for key in ("reasoning_content", "refusal"):
        if text := draw(texts):
            message[key] = text
    return PolicyReply(message=message, finish_reason="stop")


chat_messages = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "system", "developer", "tool", "assistant"])},
    optional={
        "content": st.none() | texts | st.lists(st.just(IMAGE), max_size=2),
        "name": texts,
        "tool_call_id": call_ids,
        "tool_calls": st.lists(tool_calls, max_size=2),
    },
)


def results_of(turn: Turn) -> list[dict[str, Any]]:
    return [
        {"type": "function_call_output", "call_id": item["call_id"], "output": "r"}
        for item in turn.items
        if item["type"] == "function_call"
    ]


@settings(deadline=None)
@given(st.lists(chat_messages | replies(), max_size=8))
def test_round_trip(parts: list[Any]) -> None:
    """Whatever was said, in whatever order, is sent as it was said."""
    turns = Turns()
    items: list[dict[str, Any]] = []
    expected: list[dict[str, Any]] = []
    for part in parts:
        if not isinstance(part, PolicyReply):
            items.append(part)
            expected.append(part)
            continue
        turn = turns.add(part, Request(None, []))
        items += [*turn.items, *results_of(turn)]
        expected.append(part.message)
        expected += [
            {"role": "tool", "tool_call_id": one["id"], "content": "r"} for one in part.tool_calls
        ]
    # As a session gives them back.
    assert to_chat(json.loads(json.dumps(items)), turns) == expected
    ids = [item["call_id"] for item in items if item.get("type") == "function_call"]
    assert len(set(ids)) == len(ids)


@settings(deadline=None)
@given(st.lists(replies(), min_size=1, max_size=4))
def test_round_trip_without_ids(said: list[PolicyReply]) -> None:
    """Turns are known by what they say where the items' ids were taken off."""
    turns = Turns()
    items = [item for one in said for item in turns.add(one, Request(None, [])).items]
    bare = [{key: value for key, value in item.items() if key != "id"} for item in items]
    assert to_chat(bare, turns) == [one.message for one in said]
