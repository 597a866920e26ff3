"""Samples' messages in one form, whichever framework wrote them.

They are read in three forms: chat-completions messages, Strands messages with their content
blocks, and the items of the Responses API, which the OpenAI Agents SDK keeps. What is malformed is
shown as it is, or left out; nothing raises.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

type Fields = Mapping[str, Any]

_ERROR_STARTS = ("error", "an error occurred")


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call.

    Attributes:
        id: What its result refers to; it may be empty.
        name: The tool.
        arguments: JSON, as the policy wrote it.
    """

    id: str
    name: str
    arguments: str


@dataclass(slots=True)
class Message:
    """A message.

    Attributes:
        role: `system`, `user`, `assistant`, `tool`, or whatever the framework says.
        text: What it says; parts that are no text stand there as JSON, a line each.
        reasoning: What the policy thought before.
        calls: The tools that it calls.
        call_id: The call that this is the result of, or None for what is no result.
        failed: Whether this result says to be an error: flagged by the framework, or text that
            starts with `error` or `An error occurred`, in any case.
        usage: The policy's own count of tokens, where the message holds it.
    """

    role: str
    text: str = ""
    reasoning: str = ""
    calls: list[Call] = field(default_factory=list[Call])
    call_id: str | None = None
    failed: bool = False
    usage: Fields = field(default_factory=dict[str, Any])


def read_messages(messages: Sequence[Fields]) -> list[Message]:
    """Return the messages of a sample in one form."""
    read: list[Message] = []
    thought = ""
    turn_is_open = False
    for fields in messages:
        kind = fields.get("type")
        if kind == "reasoning":
            thought = "\n".join(_texts(fields.get("summary"), fields.get("content")))
        elif kind == "function_call":
            # One turn of the policy may be several items: what it says, and each of its calls.
            if not turn_is_open:
                read.append(Message("assistant", reasoning=thought))
            read[-1].calls.append(_call(fields.get("call_id"), fields, fields.get("arguments")))
            thought, turn_is_open = "", True
        elif kind == "function_call_output":
            read.append(_result(fields.get("call_id"), fields.get("output"), fields))
            turn_is_open = False
        else:
            read += _messages(fields, thought)
            thought, turn_is_open = "", kind == "message" and read[-1].role == "assistant"
    return read


def as_chat(message: Message) -> dict[str, Any]:
    """Return a message for training: the same keys, in the same types, in every one of them."""
    return {
        "role": message.role,
        "content": message.text,
        "reasoning_content": message.reasoning or None,
        "tool_calls": [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in message.calls
        ],
        "tool_call_id": message.call_id,
    }


def _messages(fields: Fields, thought: str) -> Iterator[Message]:
    role = str(fields.get("role") or "unknown")
    content = fields.get("content")
    if role in {"tool", "function"}:
        yield _result(fields.get("tool_call_id"), content, fields)
        return
    results = [block for block in _objects(content) if "toolResult" in block]
    for block in results:
        result = _mapping(block["toolResult"])
        yield _result(result.get("toolUseId"), result.get("content"), result)
    message = Message(role, _text(content), usage=_usage(fields))
    told = fields.get("reasoning_content") or fields.get("reasoning")
    message.reasoning = told if isinstance(told, str) else "\n".join(_thoughts(content)) or thought
    message.calls = [*_chat_calls(fields), *_block_calls(content)]
    if message.text or message.calls or message.reasoning or not results:
        yield message


def _chat_calls(fields: Fields) -> Iterator[Call]:
    for call in _objects(fields.get("tool_calls")):
        function = _mapping(call.get("function"))
        yield _call(call.get("id"), function, function.get("arguments"))


def _block_calls(content: object) -> Iterator[Call]:
    for block in _objects(content):
        if "toolUse" in block:
            use = _mapping(block["toolUse"])
            yield _call(use.get("toolUseId"), use, use.get("input"))


def _call(call_id: object, named: Fields, arguments: object) -> Call:
    written = arguments if isinstance(arguments, str) else _json(arguments or {})
    return Call(str(call_id or ""), str(named.get("name") or "unknown"), written)


def _result(call_id: object, content: object, flags: Fields) -> Message:
    text = _text(content)
    flagged = (flags.get("is_error"), flags.get("isError"), flags.get("status") == "error")
    failed = True in flagged or text.lstrip().lower().startswith(_ERROR_STARTS)
    return Message("tool", text, call_id=str(call_id or ""), failed=failed)


def _text(content: object) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, list):
        return "\n".join(_texts(cast("object", content)))
    return _json(content)


def _texts(*contents: object) -> Iterator[str]:
    shown_elsewhere = {"toolUse", "toolResult", "reasoningContent"}
    for content in contents:
        for part in cast("list[object]", content) if isinstance(content, list) else ():
            if isinstance(part, str):
                yield part
            elif isinstance(text := _mapping(part).get("text"), str):
                yield text
            elif not shown_elsewhere & _mapping(part).keys():
                yield _json(part)


def _thoughts(content: object) -> Iterator[str]:
    for block in _objects(content):
        thought = _mapping(_mapping(block.get("reasoningContent")).get("reasoningText"))
        if isinstance(text := thought.get("text"), str):
            yield text


def _usage(fields: Fields) -> Fields:
    return _mapping(fields.get("usage")) or _mapping(_mapping(fields.get("metadata")).get("usage"))


def _mapping(value: object) -> Fields:
    return cast("Fields", value) if isinstance(value, Mapping) else {}


def _objects(value: object) -> list[Fields]:
    items = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("Fields", item) for item in items if isinstance(item, Mapping)]


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
