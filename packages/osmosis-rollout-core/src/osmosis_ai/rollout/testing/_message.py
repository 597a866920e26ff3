"""One assistant message in chat-completions form: whole, and in the deltas of a stream."""

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

type Text = str | Sequence[str]
"""Text, or the fragments that it is streamed in."""


@dataclass(frozen=True)
class ToolCall:
    """One call in an assistant message.

    Attributes:
        name: The tool's name.
        arguments: An object, which is sent as JSON text; or that text itself; or the fragments
            that it is streamed in.
        id: The call's id; `call_<position>` when it is empty.
    """

    name: str
    arguments: Mapping[str, Any] | Text = "{}"
    id: str = ""

    @property
    def fragments(self) -> list[str]:
        """The argument text as it is streamed."""
        if isinstance(self.arguments, Mapping):
            return [json.dumps(self.arguments)]
        return _fragments(self.arguments) or [""]

    def head(self, index: int, arguments: str) -> dict[str, Any]:
        """Return the call in chat-completions form, with this much of its arguments."""
        return {
            "id": self.id or f"call_{index}",
            "type": "function",
            "function": {"name": self.name, "arguments": arguments},
        }


def whole_message(
    content: Text | None, reasoning: Text | None, calls: Sequence[ToolCall]
) -> dict[str, Any]:
    """Return the message as it is sent without streaming."""
    message: dict[str, Any] = {"role": "assistant", "content": _joined(content)}
    if reasoning is not None:
        message["reasoning_content"] = _joined(reasoning)
    if calls:
        message["tool_calls"] = [
            call.head(index, "".join(call.fragments)) for index, call in enumerate(calls)
        ]
    return message


def single_delta(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a whole message as one delta."""
    delta = dict(message)
    if "tool_calls" in delta:
        calls = enumerate(delta["tool_calls"])
        delta["tool_calls"] = [{"index": index, **call} for index, call in calls]
    return delta


def deltas(
    content: Text | None, reasoning: Text | None, calls: Sequence[ToolCall], *, interleaved: bool
) -> list[dict[str, Any]]:
    """Return the deltas of a stream: the role, then reasoning, content and calls in fragments.

    Args:
        content: The text.
        reasoning: The reasoning.
        calls: The calls.
        interleaved: Whether the calls' fragments come in turns instead of call by call.
    """
    by_call = [_call_fragments(index, call) for index, call in enumerate(calls)]
    if interleaved:
        turns = itertools.zip_longest(*by_call)
        pieces = [piece for turn in turns for piece in turn if piece is not None]
    else:
        pieces = [piece for call in by_call for piece in call]
    return [
        {"role": "assistant", "content": None if calls else ""},
        *({"reasoning_content": piece} for piece in _fragments(reasoning)),
        *({"content": piece} for piece in _fragments(content)),
        *({"tool_calls": [piece]} for piece in pieces),
    ]


def _call_fragments(index: int, call: ToolCall) -> list[dict[str, Any]]:
    first, *rest = call.fragments
    return [
        {"index": index, **call.head(index, first)},
        *({"index": index, "function": {"arguments": piece}} for piece in rest),
    ]


def _fragments(text: Text | None) -> list[str]:
    if text is None:
        return []
    return [text] if isinstance(text, str) else list(text)


def _joined(text: Text | None) -> str | None:
    return None if text is None else "".join(text)
