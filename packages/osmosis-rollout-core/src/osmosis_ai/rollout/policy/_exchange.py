"""One call to the policy: a request, the events of its answer, and the reply made of them."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from functools import partial
from typing import Any

from osmosis_ai.rollout.context import RolloutContext
from osmosis_ai.rollout.policy._assembly import Assembly
from osmosis_ai.rollout.policy._chunks import chunk_in
from osmosis_ai.rollout.policy._end import AnswerWithin
from osmosis_ai.rollout.policy._endpoint import Endpoint
from osmosis_ai.rollout.policy._events import EventReader
from osmosis_ai.rollout.policy._http import open_answer
from osmosis_ai.rollout.policy._payload import encode_request
from osmosis_ai.rollout.policy._pool import PooledSession
from osmosis_ai.rollout.policy._reply import PolicyPiece, PolicyReply


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
        PooledSession() as session,
        AnswerWithin(rollout, partial(open_answer, session, endpoint, body)) as answer,
    ):
        events = EventReader(answer)
        while batch := await events.read():
            for kind, data in batch:
                if piece := assembly.add(chunk_in(kind, data, endpoint)):
                    yield piece
        await answer.drain()
    yield assembly.reply()
