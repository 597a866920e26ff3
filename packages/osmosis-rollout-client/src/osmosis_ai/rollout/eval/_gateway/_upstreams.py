"""The upstreams of a gateway: which one gets a call, and how often it is tried."""

import asyncio
import logging
import random
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Final

import aiohttp

from osmosis_ai.rollout.eval._gateway._answer import Answer, Upstream, UpstreamError
from osmosis_ai.rollout.eval._gateway._extras import Asked, token_parameters, wanted_by
from osmosis_ai.rollout.policy.answers import Endpoint
from osmosis_ai.rollout.policy.transport import (
    FAILURES,
    FINAL_FAILURES,
    describe_failure,
    new_session,
    retry_after_sec,
    send,
)

_log = logging.getLogger(__name__)

_LOOK_SEC: Final = 10.0

TRIES: Final = 3
"""How many tries of one call may fail."""
_BACKOFF_SEC: Final = 0.5
# A dead upstream has no calls under way: without this it would get every call first.
_DOUBT_SEC: Final = 10.0
_SHORTEST_REST_SEC: Final = 0.05
_LONGEST_BACKOFF_SEC: Final = 2.0
LONGEST_REST_SEC: Final = 60.0
"""The longest `Retry-After` that is waited for; a call with a longer one is told so at once."""
LONGEST_WAIT_SEC: Final = 180.0
"""How long all such waiting of one call may take."""
_UNWELL: Final = frozenset({502, 503, 504})
_NOT_TAKEN: Final = frozenset({400, 422})


class Upstreams:
    """Sends each call to the upstream that has the fewest, and tries again where that may help.

    Args:
        endpoints: The upstreams.
        max_calls: How many calls they answer at a time, together; others wait in line.
    """

    def __init__(self, endpoints: Sequence[Endpoint], max_calls: int) -> None:
        self._all = [Upstream(endpoint) for endpoint in endpoints]
        self._slots = asyncio.Semaphore(max_calls)
        self._session: aiohttp.ClientSession | None = None

    def start(self) -> None:
        """Get ready to send."""
        self._session = new_session()

    async def stop(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    async def token_parameters(self) -> dict[str, Any]:
        """Return the parameters that make the upstreams send token ids; all are one engine."""
        assert self._session is not None
        upstream = self._all[0]
        models: object = None
        try:
            async with asyncio.timeout(_LOOK_SEC):
                key = upstream.endpoint.authorization
                headers = {"Authorization": key} if key else {}
                asked = send(self._session, "GET", upstream.models_url, headers)
                async with await asked as response:
                    models = await response.json(content_type=None)
        except (*FAILURES, ValueError, RecursionError):
            pass  # not every engine has this route
        return token_parameters(models)

    async def open(self, asked: Asked) -> Answer:
        """Send a call and return the answer, once its body has begun, or a refusal.

        Failed connections are tried again, and 502, 503 and 504 on another upstream. Where all
        upstreams answer 429 and say when they will take calls again, that is waited for. What is
        refused with parameters of the gateway's own is tried without them.

        Raises:
            UpstreamError: there is no answer.
        """
        await self._slots.acquire()
        try:
            answer = await self._answer(asked)
        except BaseException:
            self._slots.release()
            raise
        answer.closing.callback(self._slots.release)
        return answer

    async def _answer(self, asked: Asked) -> Answer:
        tries = _Tries(self._all)
        while True:
            upstream = tries.next_upstream()
            if upstream.rest_sec:
                await asyncio.sleep(upstream.rest_sec)
                continue
            try:
                answer = await self._ask(upstream, asked, tries.count)
            except FAILURES as error:
                if not await tries.again_after_failure(upstream, error):
                    reason = describe_failure(error, upstream.endpoint)
                    msg = f"the upstream gave no answer: {reason}"
                    raise UpstreamError(msg) from None
                continue
            if not tries.again_after(answer):
                return answer
            answer.close()

    async def _ask(self, upstream: Upstream, asked: Asked, retries: int) -> Answer:
        added = asked.added.keys() - upstream.refused
        answer = await self._send(upstream, asked.body(upstream.refused), retries)
        if not added or answer.status not in _NOT_TAKEN:
            return answer
        answer.close()
        answer = await self._send(upstream, asked.body(asked.added.keys()), retries)
        # Calls that came meanwhile may have found the same.
        if answer.status < 300 and (news := added - upstream.refused):
            upstream.refused |= news
            _log.warning(
                "%s refuses calls that ask for what the run wants to know (%s): "
                "it is not asked for that any more, and does not tell it.",
                upstream.endpoint.shown,
                wanted_by(news),
            )
        return answer

    async def _send(self, upstream: Upstream, body: bytes, retries: int) -> Answer:
        assert self._session is not None
        with ExitStack() as closing:
            closing.enter_context(upstream.busy())
            url, headers = upstream.endpoint.url, upstream.endpoint.headers
            response = await send(self._session, "POST", url, headers, body)
            closing.callback(response.close)
            # A refusal says enough by its status: its body is not waited for here.
            first = b"" if response.status >= 300 else await response.content.readany()
            return Answer(upstream, response, first, retries, closing.pop_all())


class _Tries:
    """The tries of one call, over all upstreams."""

    def __init__(self, upstreams: Sequence[Upstream]) -> None:
        self.count = 0
        self._upstreams = upstreams
        self._failed: set[Upstream] = set()
        self._failures = 0
        self._shortest_rest_sec = _SHORTEST_REST_SEC
        self._patient_until = time.monotonic() + LONGEST_WAIT_SEC

    def next_upstream(self) -> Upstream:
        """Return the upstream to try now."""
        well = [upstream for upstream in self._upstreams if upstream not in self._failed]
        return min(well, key=lambda upstream: upstream.load)

    async def again_after_failure(self, upstream: Upstream, error: Exception) -> bool:
        """Tell, when it is time for it, whether to try again after an upstream gave no answer."""
        self._note_failure(upstream)
        if self._failures >= TRIES or isinstance(error, FINAL_FAILURES):
            return False
        if len(self._failed) == len(self._upstreams):
            self._failed.clear()
            await asyncio.sleep(_BACKOFF_SEC * self._failures * random.uniform(1, 1.2))
        return True

    def again_after(self, answer: Answer) -> bool:
        """Tell whether to try again instead of passing an answer on."""
        if answer.status == 429:
            self.count += 1
            return self._may_wait(answer)
        if answer.status not in _UNWELL:
            return False
        self._note_failure(answer.upstream)
        return self._failures < TRIES and len(self._failed) < len(self._upstreams)

    def _note_failure(self, upstream: Upstream) -> None:
        self.count += 1
        self._failures += 1
        self._failed.add(upstream)
        upstream.doubt(_DOUBT_SEC)

    def _may_wait(self, answer: Answer) -> bool:
        seconds = retry_after_sec(answer.headers.get("Retry-After", ""))
        if seconds is None or seconds > LONGEST_REST_SEC:
            return False
        # One that keeps saying "at once", and refuses then, must not become a busy loop.
        answer.upstream.rest(max(seconds, self._shortest_rest_sec))
        self._shortest_rest_sec = min(2 * self._shortest_rest_sec, _LONGEST_BACKOFF_SEC)
        soonest = min(one.rest_sec for one in self._upstreams if one not in self._failed)
        return time.monotonic() + soonest < self._patient_until
