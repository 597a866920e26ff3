"""The converters of the Agents SDK, which are imported here and nowhere else.

They are not part of its public interface, so this is where a new release can break; the tests run
on the oldest and the newest one.
"""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, Final, cast

from agents.agent_output import AgentOutputSchemaBase
from agents.handoffs import Handoff
from agents.items import TResponseStreamEvent
from agents.models.chatcmpl_converter import Converter
from agents.models.chatcmpl_stream_handler import ChatCmplStreamHandler
from agents.models.fake_id import FAKE_RESPONSES_ID
from agents.tool import Tool
from openai.types.chat import ChatCompletionChunk
from openai.types.responses import Response

from osmosis_ai.rollout import MessageDict

MODEL_NAME: Final = "osmosis-rollout"
"""What the policy is called towards the framework, which wants a name for every model."""


def chat_messages(items: Sequence[Mapping[str, Any]]) -> list[MessageDict]:
    """Return the chat-completions messages of Responses items.

    Raises:
        agents.UserError: an item has no chat-completions form.
    """
    converted: Iterable[Any] = Converter.items_to_messages(cast("Any", items))
    return [dict(message) for message in converted]


def chat_part(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return the chat-completions content part of a Responses one (`input_image`...).

    Raises:
        agents.UserError: there is no such part.
    """
    [converted] = cast("Any", Converter.extract_all_content(cast("Any", [part])))
    return dict(converted)


def chat_tools(tools: Iterable[Tool], handoffs: Iterable[Handoff[Any, Any]]) -> list[MessageDict]:
    """Return the chat-completions tools that stand for an agent's tools and handoffs.

    Raises:
        agents.UserError: a tool runs on OpenAI's servers.
    """
    definitions: list[Any] = [Converter.tool_to_openai(tool) for tool in tools]
    definitions += [Converter.convert_handoff_tool(handoff) for handoff in handoffs]
    return definitions


def chat_tool_choice(choice: Any) -> str | dict[str, Any] | None:
    """Return the chat-completions `tool_choice`, or None to send none.

    Raises:
        agents.UserError: the choice is one of OpenAI's hosted tools.
    """
    converted: object = Converter.convert_tool_choice(choice)
    # What is to be left out is an object whose class differs between releases.
    return converted if isinstance(converted, str) else _given(converted)


def chat_response_format(schema: AgentOutputSchemaBase | None) -> dict[str, Any] | None:
    """Return the chat-completions `response_format` for an agent's `output_type`."""
    return _given(Converter.convert_response_format(schema))


def chunk(
    delta: Mapping[str, Any],
    finish_reason: str | None = None,
    usage: Mapping[str, Any] | None = None,
) -> ChatCompletionChunk:
    """Return a chunk of a stream for `stream_events`."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return ChatCompletionChunk.model_validate(
        {
            "id": FAKE_RESPONSES_ID,
            "created": 0,
            "model": MODEL_NAME,
            "object": "chat.completion.chunk",
            "choices": [choice],
            "usage": usage,
        }
    )


def stream_events(
    chunks: AsyncIterator[ChatCompletionChunk],
) -> AsyncGenerator[TResponseStreamEvent]:
    """Turn the chunks of one answer into the events of a Responses stream."""
    response = Response(
        id=FAKE_RESPONSES_ID,
        created_at=time.time(),
        model=MODEL_NAME,
        object="response",
        output=[],
        parallel_tool_calls=False,
        tool_choice="auto",
        tools=[],
    )
    events = ChatCmplStreamHandler.handle_stream(response, cast("Any", chunks))
    return cast("AsyncGenerator[TResponseStreamEvent]", events)


def _given(value: object) -> dict[str, Any] | None:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None
