"""One call to the policy: a request, the events of its answer, and the reply made of them."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

from osmosis_ai.rollout.context import RolloutContext
from osmosis_ai.rollout.policy._assembly import Assembly
from osmosis_ai.rollout.policy._chunks import DONE, chunk_in
from osmosis_ai.rollout.policy._end import answer_within
from osmosis_ai.rollout.policy._endpoint import Endpoint
from osmosis_ai.rollout.policy._http import Answer, open_answer
from osmosis_ai.rollout.policy._payload import encode_request
from osmosis_ai.rollout.policy._pool import pooled_client
from osmosis_ai.rollout.policy._reply import PolicyPiece, PolicyReply
from osmosis_ai.rollout.policy._sse import EventDecoder


async def exchange(
    endpoint: Endpoint,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None,
    params: Mapping[str, Any],
    rollout: RolloutContext | None,
) -> AsyncGenerator[PolicyPiece | PolicyReply]:
    """Call the policy and yield the pieces of its answer, then the whole.

    Raises:
        PolicyError: there is no whole answer.
        RolloutEndedError: `rollout` was over first.
        ValueError: the request cannot be sent as it is.
    """
    body = await encode_request(messages, tools, params)
    assembly = Assembly()
    async with (
        pooled_client() as client,
        answer_within(rollout, partial(open_answer, client, endpoint, body)) as answer,
        aclosing(_chunks(answer, endpoint)) as chunks,
    ):
        async for chunk in chunks:
            if piece := assembly.add(chunk):
                yield piece
    yield assembly.reply()


async def _chunks(answer: Answer, endpoint: Endpoint) -> AsyncGenerator[dict[str, Any]]:
    if answer.is_json:
        yield chunk_in("", await answer.read_all(), endpoint)
        return
    decoder = EventDecoder()
    while data := await answer.read():
        for event in decoder.feed(data):
            if event.data == DONE:
                await answer.drain()
                return
            yield chunk_in(event.type, event.data, endpoint)
    for event in decoder.finish():
        if event.data != DONE:
            yield chunk_in(event.type, event.data, endpoint)
