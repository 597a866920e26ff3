"""The Responses items that stand for a reply of the policy."""

import json
from collections.abc import Sequence
from typing import Any, Final

from agents.items import TResponseOutputItem
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

from osmosis_ai.rollout.integrations.agents.openai_agents._sdk import output_items
from osmosis_ai.rollout.policy import PolicyReply

_ID_PREFIXES: Final = {"reasoning": "rs", "message": "msg", "function_call": "fc"}


def reply_items(
    reply: PolicyReply, number: int, call_ids: Sequence[str]
) -> list[TResponseOutputItem]:
    """Return the items of a reply: reasoning, then the message, then the tool calls.

    Args:
        reply: The reply.
        number: Its place among the rollout's replies, which makes the items' ids.
        call_ids: The ids that the framework is to know the tool calls by.
    """
    items = output_items(_plain(reply, call_ids))
    if all(item.type == "reasoning" for item in items):
        # An empty answer is an answer; the framework would keep nothing of it.
        items.append(_empty_message())
    for place, item in enumerate(items):
        item.id = f"{_ID_PREFIXES.get(item.type, 'item')}_{number}_{place}"
        if isinstance(item, ResponseFunctionToolCall):
            item.status = "completed" if is_json(item.arguments) else "incomplete"
        elif isinstance(item, ResponseOutputMessage) and reply.finish_reason == "length":
            item.status = "incomplete"
    return items


def is_json(arguments: str) -> bool:
    """Tell whether a tool call's arguments can be read; none at all can."""
    try:
        json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return False
    return True


def _plain(reply: PolicyReply, call_ids: Sequence[str]) -> dict[str, Any]:
    """Return the reply's message without what OpenAI's types do not know."""
    known = ("content", "refusal", "reasoning_content")
    message: dict[str, Any] = {key: reply.message.get(key) for key in known}
    if reply.tool_calls:
        message["tool_calls"] = [
            {"id": call_id, "type": "function", "function": call["function"]}
            for call_id, call in zip(call_ids, reply.tool_calls, strict=True)
        ]
    return {"role": "assistant", **message}


def _empty_message() -> ResponseOutputMessage:
    text = ResponseOutputText(text="", type="output_text", annotations=[], logprobs=[])
    return ResponseOutputMessage(
        id="", content=[text], role="assistant", status="completed", type="message"
    )
