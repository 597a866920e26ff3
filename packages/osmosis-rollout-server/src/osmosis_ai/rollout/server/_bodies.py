"""Request bodies: read up to a limit, parsed strictly."""

import asyncio
import json
import re

import orjson
from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect

from osmosis_ai.rollout.server._refusals import Refusal, refuse, refuse_invalid

# Deeper bodies would hit the interpreter's recursion limit where rollouts copy them.
MAX_NESTING = 250

# orjson gives integers beyond 64 bits back as floats.
_LONG_INTEGER = re.compile(rb"\d{19}")

# A peer may send as slowly as it likes, but one that stops would keep what it has sent for ever.
STALL_SEC = 60.0

# A peer that sends more than this many times the limit is cut off; up to there it gets its 413.
_PATIENCE = 4


async def read_body(request: Request, limit: int) -> bytes:
    """Return the request's body.

    Raises:
        Refusal: 413, it is larger than `limit` bytes; 408, nothing of it came for a minute.
        starlette.requests.ClientDisconnect: the peer left while sending.
    """
    try:
        body = await _receive(request, limit)
    except TimeoutError:
        msg = f"nothing more of the body came within {STALL_SEC:g} s: send the request again"
        raise refuse(408, ("body",), msg, "body_stalled") from None
    if body is None:
        msg = f"the body is larger than {limit} bytes"
        raise refuse(413, ("body",), msg, "body_too_large")
    return body


async def _receive(request: Request, limit: int) -> bytes | None:
    """Return the request's body, or None when it is larger than `limit` bytes."""
    now = asyncio.get_running_loop().time
    chunks: list[bytes] = []
    size = 0
    # An oversized body is read on and thrown away: a connection that is closed with unread data
    # in it is reset, and the peer would never see the answer. Request.stream() does not tell which
    # part is the last one, for which nothing need be timed.
    async with asyncio.timeout(STALL_SEC) as stall:
        while size <= limit * _PATIENCE:
            message = await request.receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            chunk: bytes = message.get("body", b"")
            size += len(chunk)
            if size <= limit:
                chunks.append(chunk)
            else:
                chunks.clear()
            if not message.get("more_body", False):
                break
            stall.reschedule(now() + STALL_SEC)
    return b"".join(chunks) if size <= limit else None


def parse_body[T: BaseModel](model: type[T], body: bytes) -> T:
    """Parse a body as strict JSON (RFC 8259, finite numbers, whole UTF-8 text) and validate it.

    Raises:
        Refusal: 422, the body is no JSON or does not fit the model.
    """
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise _not_json(error) from None
    if body.count(b"[") + body.count(b"{") > MAX_NESTING:
        _check_nesting(value)
    if _LONG_INTEGER.search(body):
        value = json.loads(body)
    try:
        return model.model_validate(value, strict=True)
    except ValidationError as error:
        raise refuse_invalid(error, model) from None


def _not_json(error: orjson.JSONDecodeError) -> Refusal:
    msg = (
        "the body must be strict JSON, with finite numbers and no lone surrogates: "
        f"it cannot be read at line {error.lineno}, column {error.colno}"
    )
    return refuse(422, ("body",), msg, "json_invalid")


def _check_nesting(value: object) -> None:
    try:
        orjson.dumps(value)  # gives up beyond 254 levels, at a fraction of a walk's price
    except orjson.JSONEncodeError:
        msg = f"the body is nested deeper than {MAX_NESTING} levels"
        raise refuse(422, ("body",), msg, "json_too_deep") from None
