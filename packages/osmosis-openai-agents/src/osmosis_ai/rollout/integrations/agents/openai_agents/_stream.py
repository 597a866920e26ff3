"""A reply of the policy as the events of a Responses stream."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

from agents.items import TResponseStreamEvent
from openai.types.chat import ChatCompletionChunk
from openai.types.responses import ResponseCompletedEvent, ResponseFunctionToolCall

from osmosis_ai.rollout.integrations.agents.openai_agents._sdk import chunk, stream_events
from osmosis_ai.rollout.integrations.agents.openai_agents._turns import Turn
from osmosis_ai.rollout.integrations.agents.openai_agents._usage import chat_usage
from osmosis_ai.rollout.policy import PolicyPiece, PolicyReply


async def reply_events(
    items: AsyncGenerator[PolicyPiece | PolicyReply], take_turn: Callable[[PolicyReply], Turn]
) -> AsyncGenerator[TResponseStreamEvent]:
    """Yield the events of a reply: text and reasoning as they come, tool calls at the end.

    Args:
        items: What the policy client yields; it is closed at the end.
        take_turn: Makes the turn of the whole reply.
    """
    turn: Turn | None = None

    async def chunks() -> AsyncGenerator[ChatCompletionChunk]:
        nonlocal turn
        async for item in items:
            if isinstance(item, PolicyReply):
                turn = take_turn(item)
                yield _last_chunk(turn, item)
            elif delta := _delta(item):
                yield chunk(delta)

    async with (
        aclosing(items),
        aclosing(chunks()) as pieces,
        aclosing(stream_events(pieces)) as events,
    ):
        async for event in events:
            if isinstance(event, ResponseCompletedEvent) and turn is not None:
                # The same as without streaming, and not what was joined once more.
                event.response.output = turn.output
            yield event


def _delta(piece: PolicyPiece) -> dict[str, Any]:
    texts = {
        "content": piece.content,
        "reasoning_content": piece.reasoning,
        "refusal": piece.refusal,
    }
    return {name: text for name, text in texts.items() if text}


def _last_chunk(turn: Turn, reply: PolicyReply) -> ChatCompletionChunk:
    """Return the chunk with the tool calls, whole, so that nothing is left to be joined."""
    calls = [item for item in turn.output if isinstance(item, ResponseFunctionToolCall)]
    delta: dict[str, Any] = {
        "tool_calls": [
            {
                "index": index,
                "id": call.call_id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for index, call in enumerate(calls)
        ]
    }
    finish_reason = "tool_calls" if calls else "stop"
    return chunk(delta if calls else {}, finish_reason, chat_usage(reply.usage))
