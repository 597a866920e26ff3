"""Chat-completions history into Strands messages, so that `ctx.prompt` can be given as it is."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from osmosis_ai.rollout import MessageDict
from osmosis_ai.rollout.integrations.agents.strands._media import media_block
from osmosis_ai.rollout.types.copying import deep_copy

_TEXT_PARTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
_CHAT_ONLY_KEYS = frozenset(
    {"tool_calls", "tool_call_id", "name", "refusal", "reasoning_content", "reasoning"}
)


@dataclass
class Translated:
    """A Strands message and what it was made from.

    Attributes:
        message: The Strands message.
        chat: The chat-completions messages that it stands for; empty when it was a Strands message
            from the start.
    """

    message: dict[str, Any]
    chat: list[MessageDict] = field(default_factory=list[MessageDict])


def from_chat(messages: Sequence[Mapping[str, Any]]) -> list[Translated]:
    """Translate a conversation in chat-completions form, in Strands form, or in a mixture.

    Roles stay as they are (system and developer messages too) except that Strands keeps the tool
    results of one turn in one user message. Nothing of the input is shared with the result.

    Raises:
        ValueError: a message has no Strands form; the text names its position.
    """
    result: list[Translated] = []
    for index, message in enumerate(messages):
        original = deep_copy(dict(message))
        try:
            translated = _translate(original)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            msg = f"message {index} cannot be given to a Strands agent: {_reason(error)}"
            raise ValueError(msg) from error
        if _holds_tool_results(original) and result and _holds_tool_results(*result[-1].chat):
            result[-1].message["content"].extend(translated.message["content"])
            result[-1].chat.extend(translated.chat)
        else:
            result.append(translated)
    return result


def tool_input(arguments: object) -> object:
    """Return the tool input that `arguments`, as in a chat-completions tool call, stand for.

    Missing or blank arguments are an empty object. Text that is not JSON stays the text it is.
    """
    if arguments is None or (isinstance(arguments, str) and not arguments.strip()):
        return {}
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def _reason(error: Exception) -> str:
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)


def _holds_tool_results(*chat: MessageDict) -> bool:
    return bool(chat) and all(message.get("role") == "tool" for message in chat)


def _is_native(message: MessageDict) -> bool:
    if _CHAT_ONLY_KEYS & message.keys() or message.get("role") == "tool":
        return False
    content: Any = message.get("content")
    if not (isinstance(content, list) and content):
        return False
    return all("type" not in block for block in _listed(content))


def _translate(message: MessageDict) -> Translated:
    if _is_native(message):
        return Translated(message)
    role = message["role"]
    if role == "tool":
        block = {"toolResult": _tool_result(message)}
        return Translated({"role": "user", "content": [block]}, [message])
    return Translated({"role": role, "content": _turn(message)}, [message])


def _turn(message: MessageDict) -> list[dict[str, Any]]:
    """Return the blocks of a turn: reasoning, then content, then tool calls."""
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    blocks: list[dict[str, Any]] = []
    if reasoning:
        blocks.append({"reasoningContent": {"reasoningText": {"text": reasoning}}})
    blocks += _content(message.get("content"))
    if message.get("refusal") and message.get("content") is None:
        blocks.append({"text": message["refusal"]})
    calls = _listed(message.get("tool_calls") or [])
    return [*blocks, *(_tool_use(index, call) for index, call in enumerate(calls))]


def _content(content: Any) -> list[dict[str, Any]]:
    if content is None:
        return []
    if isinstance(content, str):
        return [{"text": content}]
    return [_block(part) for part in _listed(content)]


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list):
        msg = f"there is a {type(value).__name__} where a list should be"
        raise TypeError(msg)
    return cast("list[Any]", value)


def _block(part: Any) -> dict[str, Any]:
    if isinstance(part, str):
        return {"text": part}
    fields: dict[str, Any] = part
    kind = fields.get("type")
    if kind is None:
        return fields
    if kind in _TEXT_PARTS:
        return {"text": fields[_TEXT_PARTS[kind]]}
    return media_block(fields)


def _tool_use(index: int, call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    return {
        "toolUse": {
            "toolUseId": call.get("id") or f"call_{index}",
            "name": function["name"],
            "input": tool_input(function.get("arguments")),
        }
    }


def _tool_result(message: MessageDict) -> dict[str, Any]:
    return {
        # Some datasets carry tool messages without an id; the wire gets them back as they were.
        "toolUseId": message.get("tool_call_id") or "",
        "status": "success",
        "content": _content(message.get("content")),
    }
