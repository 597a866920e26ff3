"""Strands messages, tools and choices into chat-completions form."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from strands.types.tools import ToolSpec

from osmosis_ai.rollout import MessageDict
from osmosis_ai.rollout.integrations.agents.strands._media import media_part

_MEDIA = ("image", "document", "audio", "video")


def to_chat(message: Mapping[str, Any], *, archive: bool = False) -> list[MessageDict]:
    """Translate one Strands message; its tool results become messages of their own.

    Args:
        message: A Strands message.
        archive: Whether the result is kept rather than sent: failed tool results keep their status.

    Raises:
        ValueError: a content block has no chat-completions form.
    """
    blocks: Sequence[Mapping[str, Any]] = message["content"]
    results = [_tool_message(b["toolResult"], archive) for b in blocks if "toolResult" in b]
    others = [block for block in blocks if "toolResult" not in block]
    if results and not others:
        return results
    return [*results, _turn(message["role"], others)]


def chat_tools(specs: Iterable[ToolSpec]) -> list[dict[str, Any]]:
    """Return the chat-completions tools of Strands tool specs."""
    return [_tool(spec) for spec in specs]


def chat_tool_choice(choice: Mapping[Any, Any]) -> str | dict[str, Any]:
    """Return the chat-completions `tool_choice` of a Strands tool choice."""
    if "tool" in choice:
        return {"type": "function", "function": {"name": choice["tool"]["name"]}}
    return "required" if "any" in choice else "auto"


def _tool(spec: ToolSpec) -> dict[str, Any]:
    # Strands wraps the schemas of its own tools; those of others may come bare.
    schema = cast("dict[str, Any]", spec["inputSchema"])
    function = {
        "name": spec["name"],
        "description": spec["description"],
        "parameters": schema.get("json", schema),
    }
    return {"type": "function", "function": function}


def _turn(role: str, blocks: Sequence[Mapping[str, Any]]) -> MessageDict:
    parts = [part for block in blocks for part in _parts(block)]
    # What an assistant said was one text, even where Strands split it; other authors' blocks are
    # paragraphs.
    turn: MessageDict = {
        "role": role,
        "content": _content(parts, "" if role == "assistant" else "\n"),
    }
    if reasoning := "".join(_reasoning(block) for block in blocks):
        turn["reasoning_content"] = reasoning
    if calls := [_tool_call(block["toolUse"]) for block in blocks if "toolUse" in block]:
        turn["content"] = turn["content"] or None
        turn["tool_calls"] = calls
    return turn


def _content(parts: list[dict[str, Any]], separator: str) -> str | list[dict[str, Any]]:
    if all(part["type"] == "text" for part in parts):
        return separator.join(part["text"] for part in parts)
    return parts


def _parts(block: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the content parts of a block; reasoning, tool calls and cache points have none."""
    if "text" in block:
        return [_text(block["text"])]
    if "json" in block:
        return [_text(json.dumps(block["json"], ensure_ascii=False, default=str))]
    if "guardContent" in block:
        return [_text(block["guardContent"]["text"]["text"])]
    if "citationsContent" in block:
        return [_text(cited["text"]) for cited in block["citationsContent"].get("content", [])]
    if {"reasoningContent", "toolUse", "cachePoint"} & block.keys():
        return []
    for kind in _MEDIA:
        if kind in block:
            return [media_part(kind, block[kind])]
    msg = f"a Strands block with {', '.join(sorted(block)) or 'no key'} has no chat form"
    raise ValueError(msg)


def _text(text: str | None) -> dict[str, Any]:
    return {"type": "text", "text": text or ""}


def _reasoning(block: Mapping[str, Any]) -> str:
    text: str = block.get("reasoningContent", {}).get("reasoningText", {}).get("text", "")
    return text


def _tool_call(use: Mapping[str, Any]) -> dict[str, Any]:
    arguments = use["input"]
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return {
        "id": use["toolUseId"],
        "type": "function",
        "function": {"name": use["name"], "arguments": arguments},
    }


def _tool_message(result: Mapping[str, Any], archive: bool) -> MessageDict:
    parts = [part for block in result["content"] for part in _parts(block)]
    failed = result.get("status") == "error"
    message: MessageDict = {
        "role": "tool",
        "tool_call_id": result["toolUseId"],
        "content": _content(_say_that_it_failed(parts) if failed else parts, "\n"),
    }
    if failed and archive:
        message["status"] = "error"
    return message


def _say_that_it_failed(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Put the status into the text, the only place that chat-completions has for it."""
    if parts and parts[0].get("text", "").lower().startswith("error"):
        return parts
    if parts and parts[0]["type"] == "text":
        return [_text(f"Error: {parts[0]['text']}"), *parts[1:]]
    return [_text("Error"), *parts]
