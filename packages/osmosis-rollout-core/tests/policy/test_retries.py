"""What is tried again, how often, and when."""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from osmosis_ai.rollout.policy import PolicyError
from osmosis_ai.rollout.testing import Reply, chunk, error_reply, raw_reply, reply, stream_reply

USER = {"role": "user", "content": "2+2?"}
NOW = {"Retry-After": "0"}
LOST = reply("lost").cut(0)


@pytest.mark.parametrize(
    "failed",
    [
        *(error_reply(status, headers=NOW) for status in (429, 502, 503, 504)),
        LOST,
        reply("lost").cut(0, reset=True),
        raw_reply(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 9\r\n\r\n"
        ),
        raw_reply(b"no http at all\r\n\r\n"),
    ],
)
async def test_failures_before_the_first_byte_are_tried_again(serve: Any, failed: Reply) -> None:
    """Twice, and the same request each time."""
    client, policy = serve(failed, failed, "4")
    assert (await client.complete([USER], seed=1)).text == "4"
    first, second, third = policy.requests
    assert first.body == second.body == third.body


@pytest.mark.parametrize("failed", [error_reply(503, "busy", headers=NOW), LOST])
async def test_the_third_failure_is_final(serve: Any, failed: Reply) -> None:
    """After three attempts the last error is raised."""
    client, policy = serve(failed, failed, failed, "too late")
    with pytest.raises(PolicyError) as caught:
        await client.complete([USER])
    assert type(caught.value) is PolicyError
    assert caught.value.is_endpoint_failure
    assert len(policy.requests) == 3


@pytest.mark.parametrize("status", [400, 401, 403, 404, 408, 409, 413, 422, 500, 501, 307])
async def test_other_statuses_are_final(serve: Any, status: int) -> None:
    """One attempt: a refusal stays one, and a 500 may have cost a sample."""
    client, policy = serve(error_reply(status), "too late")
    with pytest.raises(PolicyError):
        await client.complete([USER])
    assert len(policy.requests) == 1


async def test_nothing_is_tried_again_after_the_first_byte(serve: Any) -> None:
    """Even a comment is a byte."""
    client, policy = serve(stream_reply(b": ping\n\n", chunk(content="4")).cut(1), "too late")
    with pytest.raises(PolicyError, match="broke off"):
        await client.complete([USER])
    assert len(policy.requests) == 1


@pytest.mark.parametrize(
    "value",
    [
        "1",
        "1.0",
        "in-a-second",
        "nonsense",
        "Mon, 01 Jan 99999999999999999999 00:00:00 GMT",
        "Mon, 01 Jan 2030 00:00:00 +99999999999999",
    ],
)
async def test_retry_after_sets_the_wait(serve: Any, value: str) -> None:
    """In seconds or as a date; what is neither leaves the wait to the client."""
    if value == "in-a-second":
        value = format_datetime(datetime.now(UTC) + timedelta(seconds=2), usegmt=True)
    client, policy = serve(error_reply(503, headers={"Retry-After": value}), "4")
    before = time.monotonic()
    assert (await client.complete([USER])).text == "4"
    assert time.monotonic() - before > 0.4
    assert len(policy.requests) == 2


@pytest.mark.parametrize("value", ["0", "-5", "nan", "Thu, 01 Jan 1970 00:00:00 GMT"])
async def test_a_retry_after_in_the_past_is_now(serve: Any, value: str) -> None:
    """No wait is negative, and none is endless."""
    client, _ = serve(error_reply(503, headers={"Retry-After": value}), "4")
    assert (await client.complete([USER])).text == "4"


async def test_waiting_for_another_attempt_ends_with_the_deadline(serve: Any) -> None:
    """A long Retry-After does not outlive the rollout."""
    client, policy = serve(error_reply(503, headers={"Retry-After": "1e9"}), "too late")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await client.complete([USER])
    assert len(policy.requests) == 1
