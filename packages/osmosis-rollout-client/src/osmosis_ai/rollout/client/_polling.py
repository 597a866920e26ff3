"""Getting a rollout admitted, and reading its result until it is final."""

import asyncio
import math
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import quote

from osmosis_ai.rollout.client._connection import Connection
from osmosis_ai.rollout.client._errors import RolloutAdmissionTimeoutError, RolloutProtocolError
from osmosis_ai.rollout.types import (
    POLLING_LEASE_HEADER,
    RolloutInitResponse,
    RolloutResultResponse,
    RolloutStatus,
)

if TYPE_CHECKING:
    import httpx

_RETRY_AFTER_DEFAULT_SEC = 1.0
_RETRY_AFTER_BOUNDS_SEC = (0.05, 60.0)
# What gateways answer while the server behind them restarts.
_TEMPORARY = frozenset({502, 503, 504})
_RETRY_DELAYS_SEC = (0.1, 2.0)
# The pace of polls that a server answers at once although nothing changed.
_UNCHANGED_PACE_SEC = 0.1


async def admit(
    connection: Connection,
    body: bytes,
    *,
    secrets: tuple[str, ...],
    deadline: float,
    give_up: asyncio.Event,
) -> RolloutInitResponse | None:
    """Ask the server to start a rollout, again after each 429 until `deadline`.

    Nothing but a 429 is asked again: after a broken connection the rollout may well be running.

    Args:
        connection: The server.
        body: The request's JSON.
        secrets: The keys in it, which no error may repeat.
        deadline: In the terms of `time.monotonic()`.
        give_up: Set when the rollout is no longer wanted.

    Returns:
        The server's 202, or None when `give_up` was set before the server had room.

    Raises:
        RolloutAdmissionTimeoutError: no room until the deadline.
        RolloutProtocolError: the server could not be reached or refused.
    """
    while not give_up.is_set():
        response = await connection.send("POST", "/rollout", body=body)
        if response.status_code == HTTPStatus.ACCEPTED:
            return connection.parsed(response, RolloutInitResponse)
        if response.status_code != HTTPStatus.TOO_MANY_REQUESTS:
            raise connection.refusal(response, secrets)
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            msg = "the rollout server had no capacity until the admission deadline"
            raise RolloutAdmissionTimeoutError(msg)
        await _sleep_unless(give_up, min(_retry_after(response), remaining))
    return None


async def _sleep_unless(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass


def _retry_after(response: "httpx.Response") -> float:
    try:
        seconds = float(response.headers.get("Retry-After", ""))
    except ValueError:
        seconds = math.nan
    if not math.isfinite(seconds):
        return _RETRY_AFTER_DEFAULT_SEC
    low, high = _RETRY_AFTER_BOUNDS_SEC
    return min(max(seconds, low), high)


async def follow(
    connection: Connection,
    admitted: RolloutInitResponse,
    on_answer: Callable[[RolloutResultResponse], None],
) -> RolloutResultResponse:
    """Poll an admitted rollout until its result is final, and return that.

    Args:
        connection: The server.
        admitted: The server's 202.
        on_answer: Called with every answer, the final one included.

    Raises:
        RolloutProtocolError: the server refused, or could not be read for as long as a lease lasts.
    """
    status = RolloutStatus.QUEUED
    while True:
        began = time.monotonic()
        answer = await _read_result(connection, admitted)
        on_answer(answer)
        if answer.status.is_final:
            return answer
        if answer.status == status:
            await asyncio.sleep(max(0.0, began + _UNCHANGED_PACE_SEC - time.monotonic()))
        status = answer.status


async def _read_result(
    connection: Connection, admitted: RolloutInitResponse
) -> RolloutResultResponse:
    path = f"/rollout/{quote(admitted.rollout_id, safe='')}/result"
    headers = {POLLING_LEASE_HEADER: admitted.polling_lease_token}
    wait_sec = max(0.0, admitted.result_wait_timeout_sec)
    lease_ends = time.monotonic() + admitted.polling_lease_timeout_sec
    delay, longest_delay = _RETRY_DELAYS_SEC
    while True:
        try:
            response = await connection.send("GET", path, headers=headers, wait_sec=wait_sec)
        except RolloutProtocolError as no_answer:
            failure = no_answer
        else:
            if response.status_code == HTTPStatus.OK:
                return connection.parsed(response, RolloutResultResponse)
            failure = connection.refusal(response, (admitted.polling_lease_token,))
            if response.status_code not in _TEMPORARY:
                raise failure
        if time.monotonic() + delay >= lease_ends:
            raise failure
        await asyncio.sleep(delay)
        delay = min(2 * delay, longest_delay)
