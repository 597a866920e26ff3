"""The Responses items that stand for a reply of the policy."""

import json
from collections.abc import Mapping, Sequence

from agents.items import TResponseOutputItem
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputRefusal,
    ResponseOutputText,
    ResponseReasoningItem,
)
from openai.types.responses.response_reasoning_item import Summary

from osmosis_ai.rollout.policy import PolicyReply

type _Content = ResponseOutputText | ResponseOutputRefusal


def reply_items(
    reply: PolicyReply, number: int, call_ids: Sequence[str]
) -> list[TResponseOutputItem]:
    """Return the items of a reply: reasoning, then the message, then the tool calls.

    Args:
        reply: The reply.
        number: Its place among the rollout's replies, which makes the items' ids.
        call_ids: The ids that the framework is to know the tool calls by.
    """
    items: list[TResponseOutputItem] = []
    if thought := reply.message.get("reasoning_content"):
        items.append(_reasoning(f"rs_{number}_0", thought))
    content = _content(reply)
    if content or not call_ids:
        # An empty answer is an answer; the framework would keep nothing of it.
        content = content or [_text("")]
        items.append(_message(f"msg_{number}_{len(items)}", content, reply.finish_reason))
    calls = zip(call_ids, reply.tool_calls, strict=True)
    items += [
        _call(f"fc_{number}_{place}", call_id, call["function"])
        for place, (call_id, call) in enumerate(calls, len(items))
    ]
    return items


def is_json(arguments: str) -> bool:
    """Tell whether a tool call's arguments can be read; none at all can."""
    try:
        json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return False
    return True


def _reasoning(item_id: str, thought: str) -> ResponseReasoningItem:
    summary = [Summary(text=thought, type="summary_text")]
    return ResponseReasoningItem(id=item_id, summary=summary, type="reasoning")


def _message(item_id: str, content: list[_Content], finish_reason: str) -> ResponseOutputMessage:
    return ResponseOutputMessage(
        id=item_id,
        content=content,
        role="assistant",
        status="incomplete" if finish_reason == "length" else "completed",
        type="message",
    )


def _call(item_id: str, call_id: str, function: Mapping[str, str]) -> ResponseFunctionToolCall:
    arguments = function["arguments"]
    return ResponseFunctionToolCall(
        id=item_id,
        call_id=call_id,
        name=function["name"],
        arguments=arguments,
        status="completed" if is_json(arguments) else "incomplete",
        type="function_call",
    )


def _content(reply: PolicyReply) -> list[_Content]:
    content: list[_Content] = []
    if reply.text:
        content.append(_text(reply.text))
    if refusal := reply.message.get("refusal"):
        content.append(ResponseOutputRefusal(refusal=refusal, type="refusal"))
    return content


def _text(text: str) -> ResponseOutputText:
    return ResponseOutputText(text=text, type="output_text", annotations=[], logprobs=[])
