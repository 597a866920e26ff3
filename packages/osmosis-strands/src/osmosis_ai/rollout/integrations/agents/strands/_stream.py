"""A reply of the policy as the events that Strands builds its message from."""

import json
import time
from typing import Any

from strands.types.content import ContentBlockStartToolUse
from strands.types.event_loop import StopReason, Usage
from strands.types.streaming import StreamEvent

from osmosis_ai.rollout.integrations.agents.strands._from_chat import tool_input
from osmosis_ai.rollout.integrations.agents.strands._memory import Origin
from osmosis_ai.rollout.policy import PolicyPiece, PolicyReply

_STOP_REASONS: dict[str, StopReason] = {
    "length": "max_tokens",
    "content_filter": "content_filtered",
}


class EventStream:
    """Turns the pieces of one reply, and at last the reply, into Strands events.

    Text and reasoning are passed on as they come; tool calls only when the reply is whole.

    Attributes:
        content: The content blocks that Strands puts together from the events, once they are whole.
    """

    def __init__(self) -> None:
        self.content: list[dict[str, Any]] = []
        self._open: str | None = None
        self._said: list[str] = []
        self._started = time.monotonic()

    def take(self, item: PolicyPiece | PolicyReply) -> list[StreamEvent]:
        """Return the events of the next item that the policy client yielded."""
        if isinstance(item, PolicyReply):
            return self._end(item)
        events = self._add("reasoning", item.reasoning) if item.reasoning else []
        # A refusal was said, so it is text; Strands has no other place for it.
        for text in (item.content, item.refusal):
            if text:
                events += self._add("text", text)
        return events

    def _end(self, reply: PolicyReply) -> list[StreamEvent]:
        events = self._close()
        stop_reason = _STOP_REASONS.get(reply.finish_reason, "end_turn")
        if stop_reason != "max_tokens":
            for use in tool_uses(reply):
                stop_reason = "tool_use"
                events += self._call(use)
        events.append({"messageStop": {"stopReason": stop_reason}})
        if usage := _usage(reply.usage):
            latency_ms = int(1000 * (time.monotonic() - self._started))
            events.append({"metadata": {"usage": usage, "metrics": {"latencyMs": latency_ms}}})
        return events

    def _add(self, kind: str, text: str) -> list[StreamEvent]:
        events: list[StreamEvent] = []
        if self._open != kind:
            events += self._close()
            events.append({"contentBlockStart": {"start": {}}})
            self._open = kind
        self._said.append(text)
        if kind == "text":
            events.append({"contentBlockDelta": {"delta": {"text": text}}})
        else:
            events.append({"contentBlockDelta": {"delta": {"reasoningContent": {"text": text}}}})
        return events

    def _close(self) -> list[StreamEvent]:
        if self._open is None:
            return []
        self.content.append(_block(self._open, "".join(self._said)))
        self._said.clear()
        self._open = None
        return [{"contentBlockStop": {}}]

    def _call(self, use: dict[str, Any]) -> list[StreamEvent]:
        self.content.append({"toolUse": use})
        start: ContentBlockStartToolUse = {"toolUseId": use["toolUseId"], "name": use["name"]}
        return [
            {"contentBlockStart": {"start": {"toolUse": start}}},
            # Strands parses this text and takes what is no JSON for an empty object; as a JSON
            # string, malformed arguments survive.
            {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps(use["input"])}}}},
            {"contentBlockStop": {}},
        ]


def tool_uses(reply: PolicyReply) -> list[dict[str, Any]]:
    """Return the Strands tool uses that a reply asks for; malformed arguments stay text."""
    return [
        {
            "toolUseId": call["id"],
            "name": call["function"]["name"],
            "input": tool_input(call["function"]["arguments"]),
        }
        for call in reply.tool_calls
    ]


def reply_origin(reply: PolicyReply) -> Origin:
    """Return what a reply's Strands message stands for.

    Calls that were cut by the length limit have no results, so they cannot be sent again; they are
    kept for the record.
    """
    archived = reply.annotated
    if reply.truncated:
        archived["truncated"] = True
    if reply.finish_reason != "length":
        return Origin(wire=[reply.message], archive=[archived])
    archived["finish_reason"] = "length"
    sent = {key: value for key, value in reply.message.items() if key != "tool_calls"}
    sent["content"] = sent["content"] or ""
    calls = [{"toolUse": use} for use in tool_uses(reply)]
    return Origin(wire=[sent], archive=[archived], cut_calls=calls)


def _block(kind: str, text: str) -> dict[str, Any]:
    block = {"text": text}
    return block if kind == "text" else {"reasoningContent": {"reasoningText": block}}


def _usage(usage: dict[str, Any] | None) -> Usage | None:
    """Return the token counts as Strands spells them, if the endpoint gave both of them."""
    counts = usage or {}
    read, written = counts.get("prompt_tokens"), counts.get("completion_tokens")
    if not (isinstance(read, int) and isinstance(written, int)):
        return None
    total = counts.get("total_tokens", read + written)
    result = Usage(inputTokens=read, outputTokens=written, totalTokens=total)
    details: dict[str, Any] = counts.get("prompt_tokens_details") or {}
    if isinstance(cached := details.get("cached_tokens"), int):
        result["cacheReadInputTokens"] = cached
    return result
