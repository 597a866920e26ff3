"""The policy client."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from osmosis_ai.rollout._calls import place_after
from osmosis_ai.rollout.context import RolloutContext, get_rollout_context
from osmosis_ai.rollout.policy._reply import PolicyPiece, PolicyReply


class PolicyClient:
    """Calls the policy over streaming chat completions and returns whole answers only.

    A client holds no connection: the connections of all clients on an event loop are pooled, and
    `close_policy_clients` closes them.

    A rollout that is over ends the calls to its policy, wherever they run. Other endpoints, such as
    a judge's, can be called at any time.

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
        extra_headers: Mapping[str, str] | None = None,
        extra_query: Mapping[str, object] | None = None,
        extra_body: Mapping[str, Any] | None = None,
        **params: Any,
    ) -> PolicyReply:
        """Call the policy once and return its whole answer.

        Args:
            messages: The conversation, in chat-completions form. Roles are sent unchanged.
            tools: Tool definitions, in chat-completions form.
            extra_headers: Further headers. What the client sets itself, such as Authorization, it
                does not give away.
            extra_query: What to add to the URL's query; a list repeats its name.
            extra_body: Parameters that are named like an argument of this method, or any other.
            params: Sampling parameters and whatever else the endpoint takes, sent as they are.

        Raises:
            PolicyError: the endpoint failed, refused, or sent no whole answer. A failed connection
                and 429, 502, 503 and 504 have been tried three times by then.
            RolloutEndedError: the active rollout, whose policy it is, was over first.
            RuntimeError: no URL was given and no `RolloutContext` is active.
            ValueError: the request cannot be sent as it is.
        """
        last: PolicyPiece | PolicyReply | None = None
        items = self.stream(
            messages,
            tools=tools,
            extra_headers=extra_headers,
            extra_query=extra_query,
            extra_body=extra_body,
            **params,
        )
        async with aclosing(items):
            async for item in items:
                last = item
        assert isinstance(last, PolicyReply)
        return last

    async def stream(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        extra_headers: Mapping[str, str] | None = None,
        extra_query: Mapping[str, object] | None = None,
        extra_body: Mapping[str, Any] | None = None,
        **params: Any,
    ) -> AsyncGenerator[PolicyPiece | PolicyReply]:
        """Call the policy once and yield the pieces of its answer as they come.

        The last item is the `PolicyReply`; without one there was no answer, whatever the pieces
        said. Arguments and errors are those of `complete`. To stop early, close the generator
        (`contextlib.aclosing`): that ends the generation at the endpoint too.
        """
        # Here, so that importing the client costs no HTTP stack.
        from osmosis_ai.rollout.policy._endpoint import Endpoint
        from osmosis_ai.rollout.policy._exchange import exchange

        url, api_key, rollout = self._address()
        endpoint = Endpoint.at(url, api_key, extra_headers=extra_headers, extra_query=extra_query)
        params |= extra_body or {}
        record = _recorder(rollout, messages, tools or ())
        async with aclosing(exchange(endpoint, messages, tools, params, rollout)) as items:
            async for item in items:
                if isinstance(item, PolicyReply):
                    record(item)
                yield item

    def _address(self) -> tuple[str, str | None, RolloutContext | None]:
        """Return the endpoint's URL and key, and the active rollout if that is its policy."""
        context = get_rollout_context()
        if self._url is not None:
            is_policy = context is not None and context.chat_completions_url == self._url
            return self._url, self._api_key, context if is_policy else None
        if context is None or not context.chat_completions_url:
            msg = (
                "there is no policy to call: no RolloutContext with a chat_completions_url is "
                "active here. Call it inside run(), in a task or asyncio.to_thread started there, "
                "or give PolicyClient a url"
            )
            raise RuntimeError(msg)
        return context.chat_completions_url, self._api_key or context.api_key, context


def _recorder(
    rollout: RolloutContext | None,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]],
) -> Callable[[PolicyReply], None]:
    """Return what notes the reply to `messages` in the rollout."""
    if rollout is None:
        return lambda _: None
    calls = rollout.policy_calls
    # Before the call: until its answer comes, user code may change the conversation.
    place, offered = place_after(messages), [*tools]
    return lambda reply: calls.record(place, reply.message, reply.telemetry, offered)
