"""Sending a request until an answer begins, and reading that answer to its end."""

import asyncio
import random
from contextlib import suppress
from typing import Final

import aiohttp

from osmosis_ai.rollout.policy._endpoint import Endpoint
from osmosis_ai.rollout.policy._errors import PolicyError
from osmosis_ai.rollout.policy._refusals import bounded, refusal_message
from osmosis_ai.rollout.policy.transport import (
    FAILURES,
    FINAL_FAILURES,
    describe_failure,
    retry_after_sec,
    send,
)

_BACKOFF_SEC: Final = (0.5, 1.0)
_MAX_RETRY_AFTER_SEC: Final = 30.0
_RETRIED_STATUSES: Final = frozenset({429, 502, 503, 504})
_MAX_REFUSAL_BYTES: Final = 64 * 1024
_REFUSAL_SEC: Final = 2.0
_DRAIN_SEC: Final = 0.2
# 128k tokens with twenty alternatives each are a quarter of that.
_MAX_ANSWER_BYTES: Final = 1 << 30


class _TransientError(Exception):
    """An attempt failed in a way that may pass."""

    def __init__(self, error: PolicyError, retry_after: float | None = None) -> None:
        super().__init__()
        self.error = error
        self.retry_after = retry_after


class Answer:
    """A successful response whose body has begun; close it when done."""

    def __init__(self, endpoint: Endpoint, response: aiohttp.ClientResponse, first: bytes) -> None:
        self._endpoint = endpoint
        self._response = response
        self._first = first
        self._size = 0

    @property
    def is_json(self) -> bool:
        """Whether the body is one JSON document rather than an event stream."""
        kind = self._response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        return kind == "application/json" or self._first.lstrip().startswith(b"{")

    async def read(self) -> bytes:
        """Return the next bytes as they come, none at the end.

        Raises:
            PolicyError: the connection broke, or the answer does not end.
        """
        if self._first:
            data, self._first = self._first, b""
            return data
        try:
            data = await self._response.content.readany()
        except FAILURES as error:
            msg = f"the policy's answer broke off: {describe_failure(error, self._endpoint)}"
            raise PolicyError(msg) from error
        self._size += len(data)
        if self._size > _MAX_ANSWER_BYTES:
            msg = f"the policy's answer does not end within {_MAX_ANSWER_BYTES >> 20} MiB"
            raise PolicyError(msg)
        return data

    async def read_all(self) -> bytes:
        """Return the rest of the body.

        Raises:
            PolicyError: the connection broke, or the answer does not end.
        """
        parts: list[bytes] = []
        while data := await self.read():
            parts.append(data)
        return b"".join(parts)

    async def drain(self) -> None:
        """Read past the end of the answer, if it comes soon: only a body that was read to its end
        leaves its connection to the next call.
        """
        if self._response.content.at_eof():
            return
        with suppress(PolicyError, TimeoutError):
            async with asyncio.timeout(_DRAIN_SEC):
                while await self.read():
                    pass

    def close(self) -> None:
        """Close the response, and the connection too unless the body was read to its end."""
        self._response.close()


async def open_answer(session: aiohttp.ClientSession, endpoint: Endpoint, body: bytes) -> Answer:
    """Send the request and return the answer once its first byte is there.

    Connection errors, 429, 502, 503 and 504 are tried again twice; the server's `Retry-After` sets
    the wait within limits.

    Raises:
        PolicyError: the endpoint cannot be reached, or refused.
    """
    for backoff in _BACKOFF_SEC:
        try:
            return await _attempt(session, endpoint, body)
        except _TransientError as failure:
            wait = failure.retry_after
        await asyncio.sleep(backoff * random.uniform(1, 1.2) if wait is None else wait)
    try:
        return await _attempt(session, endpoint, body)
    except _TransientError as failure:
        raise failure.error from failure.__cause__


async def _attempt(session: aiohttp.ClientSession, endpoint: Endpoint, body: bytes) -> Answer:
    try:
        response = await send(session, "POST", endpoint.url, endpoint.headers, body)
        return await _begin(endpoint, response)
    except FAILURES as error:
        msg = f"the policy endpoint gave no answer: {describe_failure(error, endpoint)}"
        failed = PolicyError(msg)
        if isinstance(error, FINAL_FAILURES):
            raise failed from error
        raise _TransientError(failed) from error


async def _begin(endpoint: Endpoint, response: aiohttp.ClientResponse) -> Answer:
    try:
        if response.status // 100 != 2:
            raise await _refusal(endpoint, response)
        return Answer(endpoint, response, await response.content.readany())
    except BaseException:
        response.close()
        raise


async def _refusal(endpoint: Endpoint, response: aiohttp.ClientResponse) -> Exception:
    body = b""
    # The status is known, and that the rest does not come must not make it a timeout.
    with suppress(*FAILURES):
        async with asyncio.timeout(_REFUSAL_SEC):
            while len(body) < _MAX_REFUSAL_BYTES and (data := await response.content.readany()):
                body += data
    message = bounded(endpoint.redact(refusal_message(response.status, body)))
    error = PolicyError(message, status=response.status)
    if response.status not in _RETRIED_STATUSES:
        return error
    return _TransientError(error, _retry_after(response))


def _retry_after(response: aiohttp.ClientResponse) -> float | None:
    seconds = retry_after_sec(response.headers.get("Retry-After", ""))
    return None if seconds is None else min(seconds, _MAX_RETRY_AFTER_SEC)
