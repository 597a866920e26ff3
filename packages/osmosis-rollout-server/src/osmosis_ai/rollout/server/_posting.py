"""One attempt at a callback: a POST, and what its answer means for the delivery."""

import asyncio
import logging
from dataclasses import dataclass, field
from typing import Final, Self
from urllib.parse import urlsplit, urlunsplit

import aiohttp

from osmosis_ai.rollout.policy.transport import (
    FAILURES,
    PooledSession,
    UnsendableError,
    basic_authorization,
    failure_reason,
    proxy_note,
    retry_after_sec,
    send,
)
from osmosis_ai.rollout.server._auth import ControllerAuth

ATTEMPT_SEC: Final = 10.0
"""How long one attempt may take, from the connection to the answer's last byte, in seconds."""

# A report of a long conversation, with token ids and logprobs, is a few megabytes.
LARGEST_ANSWER_MIB: Final = 16

_RETRIED_STATUSES: Final = frozenset({429, 500, 502, 503, 504})

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Target:
    """Where callbacks go, and how that may be shown.

    Attributes:
        url: The whole URL but for user and password; its query may hold secrets.
        authorization: The headers that open it.
    """

    url: str = field(repr=False)
    authorization: dict[str, str] = field(repr=False)

    @classmethod
    def at(cls, url: str, api_key: str | None) -> Self:
        """Return the target with this URL; a user and password in it serve when there is no key."""
        authorization = ControllerAuth(api_key).as_bearer_headers()
        if "@" in url:
            parts = urlsplit(url)
            if not authorization and (basic := basic_authorization(parts)):
                authorization = {"Authorization": basic}
            url = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
        return cls(url, authorization)

    @property
    def shown(self) -> str:
        """The URL for logs."""
        return urlunsplit(urlsplit(self.url)._replace(query="", fragment=""))

    def redact(self, text: str) -> str:
        """Return the text without what the URL or the key would give away."""
        key = self.authorization.get("Authorization", "").rpartition(" ")[2]
        for secret in (key, urlsplit(self.url).query):
            text = text.replace(secret, "[secret]") if secret else text
        return text


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of an attempt.

    Attributes:
        status: The HTTP status; None when there was no whole answer.
        body: The body of a 2xx answer; empty when it is too long to be looked at.
        problem: Why it is no delivery; empty when it is one.
        may_pass: Whether another attempt makes sense.
        retry_after: How long the peer asks to wait before that, in seconds.
    """

    status: int | None = None
    body: bytes = b""
    problem: str = ""
    may_pass: bool = False
    retry_after: float | None = None


async def post(target: Target, key: str, body: bytes) -> Answer:
    """Send a body once; whatever goes wrong is in the answer.

    Args:
        target: Where to.
        key: The delivery's `Idempotency-Key`.
        body: JSON.

    Raises:
        asyncio.CancelledError: the calling task was cancelled.
    """
    try:
        async with asyncio.timeout(ATTEMPT_SEC):
            return await _exchange(target, key, body)
    except TimeoutError:
        return _lost(target, f"no whole answer came within {ATTEMPT_SEC:g} s")
    except UnsendableError as error:
        return Answer(problem=failure_reason(error))
    except FAILURES as error:
        return _lost(target, failure_reason(error))


async def _exchange(target: Target, key: str, body: bytes) -> Answer:
    headers = {
        **target.authorization,
        "Accept-Encoding": "identity",
        "Content-Type": "application/json",
        "Idempotency-Key": key,
    }
    async with PooledSession() as session:
        response = await send(session, "POST", target.url, headers, body)
        try:
            return await _judge(target, response)
        finally:
            response.close()


async def _judge(target: Target, response: aiohttp.ClientResponse) -> Answer:
    status = response.status
    if status // 100 == 2:
        # An answer that breaks off may belong to a peer that does not know of the delivery; the
        # key lets one that does tell the repeat.
        return Answer(status, await _read(target, response))
    return Answer(
        status,
        problem=f"the answer was {status}",
        may_pass=status in _RETRIED_STATUSES,
        retry_after=retry_after_sec(response.headers.get("Retry-After", "")),
    )


async def _read(target: Target, response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    while data := await response.content.readany():
        body += data
        if len(body) > LARGEST_ANSWER_MIB << 20:
            _log.warning(
                "The answer of %s is longer than %d MiB: it is not looked at.",
                target.shown,
                LARGEST_ANSWER_MIB,
            )
            return b""
    return bytes(body)


def _lost(target: Target, reason: str) -> Answer:
    note = proxy_note(target.url)
    return Answer(problem=target.redact(reason) + (note and f",{note}"), may_pass=True)
