"""Prompts in chat-completions form become Strands messages, and the wire gets them back."""

import asyncio
import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osmosis_ai.rollout import RolloutContext
from osmosis_ai.rollout.integrations.agents.strands import OsmosisRolloutModel, OsmosisStrandsAgent
from osmosis_ai.rollout.integrations.agents.strands._from_chat import from_chat
from osmosis_ai.rollout.integrations.agents.strands._to_chat import to_chat
from osmosis_ai.rollout.testing import ScriptedPolicy

PNG = "data:image/png;base64,iVBORw=="
CALL = {"id": "c-1", "type": "function", "function": {"name": "add", "arguments": '{"a":1}'}}

PROMPTS: dict[str, list[dict[str, Any]]] = {
    "several-system-messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "system", "content": ""},
        {"role": "user", "content": "2+2?"},
        {"role": "system", "content": "In French."},
    ],
    "developer": [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "?"}],
    "names": [
        {"role": "user", "name": "ann", "content": "hi"},
        {"role": "user", "name": "bob", "content": "hi"},
    ],
    "parts": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "what"},
                {"type": "text", "text": "is this?"},
                {"type": "image_url", "image_url": {"url": PNG, "detail": "low"}},
                {"type": "image_url", "image_url": {"url": "https://example.com/cat.jpg?x=1"}},
                {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
                {
                    "type": "file",
                    "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBE"},
                },
                {"type": "video_url", "video_url": {"url": "https://example.com/v.mp4"}},
            ],
        }
    ],
    "tool-history": [
        {"role": "user", "content": "1+1?"},
        {"role": "assistant", "content": None, "tool_calls": [CALL, {**CALL, "id": "c-2"}]},
        {"role": "tool", "tool_call_id": "c-1", "name": "add", "content": "2"},
        {
            "role": "tool",
            "tool_call_id": "c-2",
            "content": [{"type": "text", "text": "2"}, {"type": "text", "text": "3"}],
        },
        {"role": "assistant", "content": "2", "reasoning_content": "easy"},
        {"role": "user", "content": "and now?"},
    ],
    "odd-tool-history": [
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f"}}]},
        {"role": "tool", "content": None},
        {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": '{"a": '}}]},
        {"role": "tool", "content": "x"},
        {"role": "user", "content": "?"},
    ],
    "empty-contents": [
        {"role": "user", "content": ""},
        {"role": "assistant", "content": None},
        {"role": "assistant", "content": []},
        {"role": "assistant", "content": [{"type": "text", "text": ""}]},
        {"role": "assistant", "content": None, "refusal": "No."},
        {"role": "assistant"},
        {"role": "user", "content": "?"},
    ],
    "function-role": [
        {"role": "function", "name": "f", "content": "1"},
        {"role": "user", "content": "?"},
    ],
}


@pytest.mark.parametrize("prompt", PROMPTS.values(), ids=PROMPTS)
async def test_b40_b41_b47_prompts_reach_the_policy_unchanged(
    policy: ScriptedPolicy, rollout: RolloutContext, prompt: list[dict[str, Any]]
) -> None:
    """B40, B41, B47: whatever a dataset holds is sent, and archived, as it is."""
    before = copy.deepcopy(prompt)
    policy.add("4")
    with rollout:
        agent = OsmosisStrandsAgent(
            model=OsmosisRolloutModel(), messages=prompt, callback_handler=None
        )
        await agent.invoke_async()
        sample = await rollout.get_sample()
    assert policy.requests[0].messages == before
    assert sample is not None
    assert sample.trajectory_messages is not None
    assert list(sample.trajectory_messages[:-1]) == before
    assert prompt == before


@pytest.mark.parametrize("prompt", PROMPTS.values(), ids=PROMPTS)
async def test_prompts_may_be_given_to_the_call(
    policy: ScriptedPolicy, rollout: RolloutContext, prompt: Any
) -> None:
    """`invoke_async(ctx.prompt)` says the same as `messages=ctx.prompt`, also in a later call."""
    before = copy.deepcopy(prompt)
    again: Any = [{"role": "user", "name": "bob", "content": "sure?"}]
    policy.add("4", "5")
    with rollout:
        agent = OsmosisStrandsAgent(model=OsmosisRolloutModel(), callback_handler=None)
        await agent.invoke_async(prompt)
        await agent.invoke_async(again)
        sample = await rollout.get_sample()
    assert policy.requests[0].messages == before
    assert policy.requests[1].messages[len(before) + 1 :] == again
    assert sample is not None
    assert sample.trajectory_messages is not None
    assert list(sample.trajectory_messages[: len(before)]) == before
    assert prompt == before


@pytest.mark.parametrize(
    "prompt",
    [
        [{"text": "2+2?"}],
        [{"role": "user", "content": [{"text": "2+2?"}]}],
    ],
    ids=["blocks", "messages"],
)
async def test_prompts_of_a_call_in_strands_form(
    policy: ScriptedPolicy, rollout: RolloutContext, prompt: Any
) -> None:
    """What Strands takes for a prompt stays as it was."""
    policy.add("4")
    with rollout:
        agent = OsmosisStrandsAgent(model=OsmosisRolloutModel(), callback_handler=None)
        await asyncio.to_thread(agent, prompt)
    assert policy.requests[0].messages == [{"role": "user", "content": "2+2?"}]


async def test_a_call_names_the_message_that_has_no_strands_form(rollout: RolloutContext) -> None:
    """A prompt that cannot be translated is an error that says where, before anything is asked."""
    prompt: Any = [{"role": "user", "content": [{"type": "hologram"}]}]
    with rollout:
        agent = OsmosisStrandsAgent(model=OsmosisRolloutModel(), callback_handler=None)
        with pytest.raises(ValueError, match="message 0 cannot be given to a Strands agent"):
            await agent.invoke_async(prompt)


def blocks(*chat: dict[str, Any]) -> list[dict[str, Any]]:
    [translated] = from_chat(chat)
    return translated.message["content"]


def test_b47_strands_forms() -> None:
    """B47: what graders find in the sample are Strands' own blocks."""
    call, answer = from_chat(PROMPTS["tool-history"][1:4])
    assert call.message == {
        "role": "assistant",
        "content": [
            {"toolUse": {"toolUseId": "c-1", "name": "add", "input": {"a": 1}}},
            {"toolUse": {"toolUseId": "c-2", "name": "add", "input": {"a": 1}}},
        ],
    }
    first, second = answer.message["content"]
    assert answer.message["role"] == "user"
    assert first == {
        "toolResult": {"toolUseId": "c-1", "status": "success", "content": [{"text": "2"}]}
    }
    assert second["toolResult"]["content"] == [{"text": "2"}, {"text": "3"}]
    text, _, image, link, audio, document, video = blocks(*PROMPTS["parts"])
    assert text == {"text": "what"}
    assert image == {"image": {"format": "png", "source": {"bytes": b"\x89PNG"}}}
    assert link["image"]["format"] == "jpeg"
    assert link["image"]["source"]["location"]["url"] == "https://example.com/cat.jpg?x=1"
    assert audio == {"audio": {"format": "wav", "source": {"bytes": b"\0\0\0"}}}
    assert document["document"] == {"format": "pdf", "name": "a", "source": {"bytes": b"%PD"}}
    assert video["video"]["format"] == "mp4"
    assert blocks({"role": "assistant", "content": "2", "reasoning": "easy"}) == [
        {"reasoningContent": {"reasoningText": {"text": "easy"}}},
        {"text": "2"},
    ]


STRANDS_MESSAGES: list[dict[str, Any]] = [
    {"role": "user", "content": [{"text": "hi"}, {"cachePoint": {"type": "default"}}]},
    {
        "role": "assistant",
        "content": [
            {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "s"}}},
            {"text": "I "},
            {"text": "see."},
            {"toolUse": {"toolUseId": "t", "name": "f", "input": {"é": [1, None]}}},
        ],
        "metadata": {"usage": {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2}},
    },
    {
        "role": "user",
        "content": [
            {
                "toolResult": {
                    "toolUseId": "t",
                    "status": "error",
                    "content": [{"text": "no file"}, {"json": {"code": 2}}],
                }
            },
            {"text": "Try again."},
            {"guardContent": {"text": {"text": "guarded"}}},
            {"citationsContent": {"citations": [], "content": [{"text": "cited"}]}},
        ],
    },
]


async def test_b47_strands_messages_pass_unchanged(
    policy: ScriptedPolicy, rollout: RolloutContext
) -> None:
    """B47: Strands' own history is kept as it is, and fully translated for the policy."""
    policy.add("4")
    with rollout:
        agent = OsmosisStrandsAgent(
            model=OsmosisRolloutModel(), messages=STRANDS_MESSAGES, callback_handler=None
        )
        await agent.invoke_async()
    kept = [
        {key: value for key, value in message.items() if key != "tracking_id"}
        for message in agent.messages[:3]
    ]
    assert kept == STRANDS_MESSAGES
    assert policy.requests[0].messages == [
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": "I see.",
            "reasoning_content": "hm",
            "tool_calls": [
                {
                    "id": "t",
                    "type": "function",
                    "function": {"name": "f", "arguments": '{"é": [1, null]}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "t", "content": 'Error: no file\n{"code": 2}'},
        {"role": "user", "content": "Try again.\nguarded\ncited"},
    ]


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ({"content": "hi"}, "'role' is missing"),
        ({"role": "user", "content": 5}, "int where a list should be"),
        ({"role": "user", "content": [{"type": "hologram"}]}, "'hologram' has no Strands form"),
        ({"role": "user", "content": [{"type": "image_url"}]}, "'image_url' is missing"),
        (
            {
                "role": "user",
                "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,?"}}],
            },
            "not valid base64",
        ),
        ({"role": "user", "content": [{"type": "file", "file": {"file_id": "x"}}]}, "file_data"),
        ({"role": "assistant", "tool_calls": [{}]}, "'function' is missing"),
        ({"role": "assistant", "tool_calls": {"a": 1}}, "dict where a list should be"),
    ],
)
def test_b47_clear_errors(message: dict[str, Any], reason: str) -> None:
    """B47: what has no Strands form is named, with its place."""
    with pytest.raises(ValueError, match=f"message 1 .*{reason}"):
        from_chat([{"role": "user", "content": "hi"}, message])


def test_plain_data_urls() -> None:
    """Data URLs need not be base64."""
    part = {"type": "image_url", "image_url": {"url": "data:image/gif,%47IF"}}
    [block] = blocks({"role": "user", "content": [part]})
    assert block == {"image": {"format": "gif", "source": {"bytes": b"GIF"}}}


def test_media_without_data() -> None:
    """A block that holds nothing to send is an error, not an empty picture."""
    for source in ({}, {"location": {"type": "somewhere"}}):
        message = {"role": "user", "content": [{"image": {"format": "png", "source": source}}]}
        with pytest.raises(ValueError, match="image"):
            to_chat(message)


texts = st.text(max_size=20)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
tool_uses = st.builds(
    lambda key, name, value: {"toolUse": {"toolUseId": key, "name": name, "input": value}},
    st.text("abc123", min_size=1, max_size=5),
    st.text("xyz_", min_size=1, max_size=5),
    st.dictionaries(texts, json_values, max_size=3),
)
images = st.builds(
    lambda data, kind: {"image": {"format": kind, "source": {"bytes": data}}},
    st.binary(max_size=20),
    st.sampled_from(["png", "jpeg", "gif", "webp"]),
)
text_blocks = st.builds(lambda text: {"text": text}, texts)
assistant_turns = st.builds(
    lambda text, calls: {"role": "assistant", "content": [*text, *calls]},
    st.lists(text_blocks, min_size=1, max_size=1),
    st.lists(tool_uses, max_size=3),
)
user_turns = st.builds(
    lambda role, first, content: {"role": role, "content": [*first, *content]},
    st.sampled_from(["user", "system", "developer"]),
    st.lists(text_blocks, min_size=1, max_size=1),
    st.lists(images, max_size=2),
)
tool_turns = st.builds(
    lambda results: {"role": "user", "content": results},
    st.lists(
        st.builds(
            lambda key, text: {
                "toolResult": {"toolUseId": key, "status": "success", "content": [{"text": text}]}
            },
            st.text("abc123", min_size=1, max_size=5),
            texts,
        ),
        min_size=1,
        max_size=3,
    ),
)


@given(assistant_turns | user_turns | tool_turns)
def test_roundtrip(message: dict[str, Any]) -> None:
    """A Strands message translated to chat-completions and back is the same message."""
    chat = to_chat(message)
    [back] = from_chat(chat)
    content = [block for block in back.message["content"] if block != {"text": ""}]
    assert back.message["role"] == message["role"]
    assert content == [block for block in message["content"] if block != {"text": ""}]


chat_contents = (
    st.none()
    | texts
    | st.lists(st.builds(lambda text: {"type": "text", "text": text}, texts), max_size=3)
)
chat_messages = st.builds(
    lambda role, content, extra: {"role": role, "content": content, **extra},
    st.sampled_from(["system", "developer", "user", "assistant", "tool", "function"]),
    chat_contents,
    st.dictionaries(st.sampled_from(["name", "tool_call_id", "weight"]), texts, max_size=2),
)


@given(st.lists(chat_messages, max_size=8))
def test_nothing_of_a_prompt_is_lost(prompt: list[dict[str, Any]]) -> None:
    """Every message of a prompt is remembered by exactly one Strands message, in order."""
    before = copy.deepcopy(prompt)
    translated = from_chat(prompt)
    assert [message for turn in translated for message in turn.chat or [turn.message]] == before
