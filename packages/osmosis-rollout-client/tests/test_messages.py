"""What samples tell, whichever framework wrote their messages."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osmosis_ai.rollout.eval._conversation import Conversation, measure
from osmosis_ai.rollout.eval._messages import as_chat, read_messages

CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "2+2"}, {"type": "text", "text": "?"}]},
    {
        "role": "assistant",
        "content": None,
        "reasoning_content": "hm",
        "tool_calls": [
            {"id": "a", "function": {"name": "add", "arguments": '{"x": 2}'}},
            {"id": "b", "function": {"name": "add", "arguments": "{"}},
        ],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5},
    },
    {"role": "tool", "tool_call_id": "a", "content": "4"},
    {"role": "tool", "tool_call_id": "b", "content": "Error: no JSON"},
    {"role": "assistant", "content": "4", "usage": {"prompt_tokens": 20, "completion_tokens": 1}},
]
STRANDS: list[dict[str, Any]] = [
    {"role": "user", "content": [{"text": "2+2\n?"}]},
    {
        "role": "assistant",
        "content": [
            {"reasoningContent": {"reasoningText": {"text": "hm"}}},
            {"toolUse": {"toolUseId": "a", "name": "add", "input": {"x": 2}}},
            {"toolUse": {"toolUseId": "b", "name": "add", "input": {}}},
        ],
        "metadata": {"usage": {"inputTokens": 10, "outputTokens": 5}},
    },
    {
        "role": "user",
        "content": [
            {"toolResult": {"toolUseId": "a", "content": [{"text": "4"}], "status": "success"}},
            {"toolResult": {"toolUseId": "b", "content": [{"json": {}}], "status": "error"}},
        ],
    },
    {
        "role": "assistant",
        "content": [{"text": "4"}],
        "metadata": {"usage": {"inputTokens": 20, "outputTokens": 1}},
    },
]
RESPONSES: list[dict[str, Any]] = [
    {"role": "user", "content": "2+2\n?"},
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
    {"type": "function_call", "call_id": "a", "name": "add", "arguments": '{"x": 2}'},
    {"type": "function_call", "call_id": "b", "name": "add", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "a", "output": "4"},
    {
        "type": "function_call_output",
        "call_id": "b",
        "output": "An error occurred while running the tool.",
    },
    {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "4", "annotations": []}],
    },
]


@pytest.mark.parametrize(
    ("messages", "tokens"), [(CHAT, (30, 6)), (STRANDS, (30, 6)), (RESPONSES, (None, None))]
)
def test_every_form_tells_the_same(
    messages: list[dict[str, Any]], tokens: tuple[int | None, int | None]
) -> None:
    """Two turns, two calls in the first of them, one of which failed."""
    assert measure(messages) == Conversation(2, 2, 1, *tokens)
    read = [message for message in read_messages(messages) if message.role != "system"]
    assert [message.role for message in read] == ["user", "assistant", "tool", "tool", "assistant"]
    assert next(message.text for message in read if message.text) == "2+2\n?"
    assert read[1].reasoning == "hm"
    assert [(call.id, call.name) for call in read[1].calls] == [("a", "add"), ("b", "add")]
    assert [message.call_id for message in read[2:4]] == ["a", "b"]
    assert read[-1].text == "4"


def test_calls_after_words_are_one_turn() -> None:
    """A turn of the Responses API may be a message and calls."""
    items: list[dict[str, Any]] = [
        {"type": "message", "role": "assistant", "content": [{"text": "Let me see."}]},
        {"type": "function_call", "call_id": "a", "name": "look", "arguments": "{}"},
    ]
    [turn] = read_messages(items)
    assert (turn.text, turn.calls[0].name) == ("Let me see.", "look")


def test_tokens_are_told_only_when_every_turn_tells() -> None:
    """A sum with gaps would be no figure at all."""
    assert measure([*CHAT, {"role": "assistant", "content": "and"}]).prompt_tokens is None
    assert measure([]) == Conversation(0, 0, 0, None, None)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
names = st.sampled_from(
    ["role", "type", "content", "tool_calls", "function", "usage", "metadata", "output", "call_id"]
)


@given(st.lists(st.dictionaries(names, json_values), max_size=4))
def test_whatever_a_sample_holds_nothing_raises(messages: list[dict[str, Any]]) -> None:
    """And every message of an export has the same keys."""
    measure(messages)
    for message in read_messages(messages):
        assert list(as_chat(message)) == [
            "role",
            "content",
            "reasoning_content",
            "tool_calls",
            "tool_call_id",
        ]
