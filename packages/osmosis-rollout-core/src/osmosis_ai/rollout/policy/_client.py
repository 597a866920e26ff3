"""The policy client."""

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final

from osmosis_ai.rollout.context import get_rollout_context
from osmosis_ai.rollout.policy._assembly import Assembly
from osmosis_ai.rollout.policy._endpoint import Endpoint
from osmosis_ai.rollout.policy._errors import PolicyError
from osmosis_ai.rollout.policy._payload import encode_request
from osmosis_ai.rollout.policy._refusals import bounded, message_in, status_in
from osmosis_ai.rollout.policy._reply import PolicyPiece, PolicyReply
from osmosis_ai.rollout.policy._sse import EventDecoder
from osmosis_ai.rollout.policy._values import as_object

# What ends the stream of an OpenAI-style endpoint; an answer that is whole needs none.
DONE: Final = "[DONE]"


class PolicyClient:
    """Calls the policy over streaming chat completions and returns whole answers only.

    A client holds no connection: the connections of all clients on an event loop are pooled, and
    `close_policy_clients` closes them.

    Args:
        url: Base URL of the endpoint, without `/chat/completions`. By default each call uses the
            `RolloutContext` that is active then.
        api_key: Bearer for the endpoint; by default the active context's when that gives the URL,
            else none. The host's environment is never asked.
    """

    def __init__(self, url: str | None = None, *, api_key: str | None = None) -> None:
        self._url = url
        self._api_key = api_key

    async def complete(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **params: Any,
    ) -> PolicyReply:
        """Call the policy once and return its whole answer.

        Args:
            messages: The conversation, in chat-completions form. Roles are sent unchanged.
            tools: Tool definitions, in chat-completions form.
            params: Sampling parameters and whatever else the endpoint takes, sent as they are.

        Raises:
            PolicyError: the endpoint failed, refused, or sent no whole answer. A failed connection
                and 429, 502, 503 and 504 have been tried three times by then.
            RuntimeError: no URL was given and no `RolloutContext` is active.
            ValueError: the request cannot be sent as it is.
        """
        assembly = Assembly()
        async with aclosing(self._chunks(messages, tools, params)) as chunks:
            async for chunk in chunks:
                assembly.add(chunk)
        return assembly.reply()

    async def stream(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **params: Any,
    ) -> AsyncGenerator[PolicyPiece | PolicyReply]:
        """Call the policy once and yield the pieces of its answer as they come.

        The last item is the `PolicyReply`; without one there was no answer, whatever the pieces
        said. Arguments and errors are those of `complete`. To stop early, close the generator
        (`contextlib.aclosing`): that ends the generation at the endpoint too.
        """
        assembly = Assembly()
        async with aclosing(self._chunks(messages, tools, params)) as chunks:
            async for chunk in chunks:
                if piece := assembly.add(chunk):
                    yield piece
        yield assembly.reply()

    async def _chunks(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        params: Mapping[str, Any],
    ) -> AsyncGenerator[dict[str, Any]]:
        # Here, so that importing the client costs no HTTP stack.
        from osmosis_ai.rollout.policy._http import open_answer

        endpoint = self._endpoint()
        body = await encode_request(messages, tools, params)
        async with aclosing(await open_answer(endpoint, body)) as answer:
            if answer.is_json:
                yield _chunk("", await answer.read_all(), endpoint)
                return
            decoder = EventDecoder()
            while data := await answer.read():
                for event in decoder.feed(data):
                    if event.data == DONE:
                        await answer.drain()
                        return
                    yield _chunk(event.type, event.data, endpoint)
            for event in decoder.finish():
                if event.data != DONE:
                    yield _chunk(event.type, event.data, endpoint)

    def _endpoint(self) -> Endpoint:
        if self._url is not None:
            return Endpoint.at(self._url, self._api_key)
        context = get_rollout_context()
        if context is None or not context.chat_completions_url:
            msg = (
                "there is no policy to call: no RolloutContext with a chat_completions_url is "
                "active here. Call it inside run(), in a task or asyncio.to_thread started there, "
                "or give PolicyClient a url"
            )
            raise RuntimeError(msg)
        return Endpoint.at(context.chat_completions_url, self._api_key or context.api_key)


def _chunk(kind: str, data: str | bytes, endpoint: Endpoint) -> dict[str, Any]:
    """Return an event's chunk.

    Raises:
        PolicyError: the event is an error, or no chunk at all.
    """
    try:
        chunk = json.loads(data)
    except (ValueError, RecursionError):
        if kind != "error":
            msg = "the policy's answer is damaged: it holds an event that is not JSON"
            raise PolicyError(msg) from None
        chunk = data
    fields = as_object(chunk)
    if kind == "error" or fields.get("error") or fields.get("object") == "error":
        raise _error_in(chunk, endpoint)
    if not isinstance(chunk, dict):
        # Some servers say so in one line of text.
        if isinstance(chunk, str) and chunk:
            raise _error_in(chunk, endpoint)
        msg = "the policy's answer is damaged: it holds an event that is no JSON object"
        raise PolicyError(msg)
    return fields


def _error_in(payload: object, endpoint: Endpoint) -> PolicyError:
    message = bounded(endpoint.redact(message_in(payload)))
    return PolicyError(message or "the endpoint reported an error", status=status_in(payload))
