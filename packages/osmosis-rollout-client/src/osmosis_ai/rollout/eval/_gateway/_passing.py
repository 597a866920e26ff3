"""One call on its way through the gateway: up with the real model, and back as it comes."""

import asyncio
import re
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from typing import Any, Final

from aiohttp import web

from osmosis_ai.rollout.eval._gateway._answer import Answer, UpstreamError
from osmosis_ai.rollout.eval._gateway._app import error_response
from osmosis_ai.rollout.eval._gateway._calls import Calls
from osmosis_ai.rollout.eval._gateway._extras import Extras, with_extras
from osmosis_ai.rollout.eval._gateway._reading import AnswerReader
from osmosis_ai.rollout.eval._gateway._relay import Relay, relay_for
from osmosis_ai.rollout.eval._gateway._upstreams import Upstreams
from osmosis_ai.rollout.eval._recording import Answer as RecordedAnswer
from osmosis_ai.rollout.policy.answers import bounded, refusal_message

# Headers of one connection, or made anew; and what would lead clients and their keys elsewhere.
_KEPT_BACK: Final = frozenset(
    {"connection", "content-encoding", "content-length", "date", "keep-alive", "location"}
    | {"proxy-authenticate", "server", "set-cookie", "trailer", "transfer-encoding", "upgrade"}
)
_MAX_REFUSAL_BYTES: Final = 1024 * 1024
_REFUSAL_SEC: Final = 2.0
# Other control characters than the tab cannot stand in a header, and yet some servers send them.
_UNSENDABLE: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_LEFT: Final = "the rollout left before its answer was whole"
# Where an answer is whole, but its connection goes on.
_DRAIN_SEC: Final = 0.2


class Passage:
    """A call that passes through, once.

    Args:
        request: The rollout's request.
        body: Its body.
        keeps: Whether the answer's bytes are kept.
    """

    def __init__(self, request: web.Request, body: Mapping[str, Any], *, keeps: bool) -> None:
        self._request = request
        self._body = body
        self._kept = bytearray() if keeps else None
        self._status = 0
        self._content_type = ""
        self._reader: AnswerReader | None = None
        self._retries = 0
        self._first_byte: float | None = None
        self._over_at: float | None = None
        self._began = time.monotonic()
        self._problem: str | None = _LEFT

    @property
    def recorded(self) -> RecordedAnswer | None:
        """What the rollout got, as far as it came; None when nothing is kept."""
        if self._kept is None:
            return None
        body = bytes(self._kept)
        if self._problem is _LEFT:
            waited = time.monotonic() - self._began
            return RecordedAnswer(self._status, self._content_type, body, left_after_sec=waited)
        is_cut = self._status < 300 and self._problem is not None
        return RecordedAnswer(self._status, self._content_type, body, cut=is_cut)

    async def run(
        self, calls: Calls, upstreams: Upstreams, model: str, tokens: Mapping[str, Any] | None
    ) -> web.StreamResponse:
        """Pass the call on, and its answer back.

        Args:
            calls: The rollout's calls; this one is added.
            upstreams: Where it goes.
            model: The real model.
            tokens: The parameters that make the upstreams send token ids, or None.
        """
        call = calls.begin()
        asked, extras = with_extras(self._body, model, tokens)
        try:
            with closing(await upstreams.open(asked)) as answer:
                return await self._pass_back(answer, extras)
        except UpstreamError as error:
            self._problem = str(error)
            return self._own_refusal(502, self._problem)
        finally:
            call.retries, call.first_byte = self._retries, self._first_byte
            replies = self._reader.replies() if self._reader and self._problem is None else []
            problem = self._problem or (self._reader.problem if self._reader else None)
            calls.end(call, self._body.get("messages"), replies, problem)

    async def _pass_back(self, answer: Answer, extras: Extras) -> web.StreamResponse:
        self._retries, self._first_byte = answer.retries, time.monotonic()
        if answer.status >= 300:
            return await self._pass_refusal(answer)
        self._reader = AnswerReader(answer.upstream.endpoint)
        relay = relay_for(answer, extras, self._reader)
        if answer.is_document:
            return await self._pass_document(answer, relay)
        return await self._pass_stream(answer, relay)

    async def _pass_refusal(self, answer: Answer) -> web.Response:
        body = answer.first
        # The status is known: that the rest does not come must not hide it.
        with suppress(UpstreamError, TimeoutError):
            async with asyncio.timeout(_REFUSAL_SEC):
                while len(body) < _MAX_REFUSAL_BYTES and (data := await answer.read()):
                    body += data
        body = answer.redact(body)
        redact = answer.upstream.endpoint.redact
        message = bounded(redact(refusal_message(answer.status, body)))
        self._problem = f"the upstream answered {answer.status}: {message}"
        return self._whole_response(answer, body)

    async def _pass_document(self, answer: Answer, relay: Relay) -> web.Response:
        relay.take(answer.first)
        while data := await answer.read():
            relay.take(data)
        self._problem = None
        return self._whole_response(answer, relay.end())

    def _whole_response(self, answer: Answer, body: bytes) -> web.Response:
        self._note(answer.status, answer.headers.get("Content-Type", ""), body)
        return web.Response(status=answer.status, body=body, headers=_passed_on(answer))

    async def _pass_stream(self, answer: Answer, relay: Relay) -> web.StreamResponse:
        response = web.StreamResponse(status=answer.status, headers=_passed_on(answer))
        self._note(answer.status, answer.headers.get("Content-Type", ""), b"")
        await response.prepare(self._request)
        try:
            data = answer.first
            while data:
                await self._write(response, relay.take(data))
                data = await self._next(answer)
            await self._write(response, relay.end())
            self._problem = None
        except UpstreamError as error:
            self._problem = str(error)
        finally:
            # Without an end of its own the answer must not get one here.
            if self._problem is not None and self._request.transport is not None:
                self._request.transport.close()
        return response

    async def _next(self, answer: Answer) -> bytes:
        assert self._reader is not None
        if not self._reader.is_done:
            return await answer.read()
        self._over_at = self._over_at or asyncio.get_running_loop().time() + _DRAIN_SEC
        with suppress(TimeoutError, UpstreamError):
            async with asyncio.timeout_at(self._over_at):
                return await answer.read()
        return b""

    async def _write(self, response: web.StreamResponse, data: bytes) -> None:
        if not data:
            return
        if self._kept is not None:
            self._kept += data
        await response.write(data)

    def _own_refusal(self, status: int, message: str) -> web.Response:
        response = error_response(status, message, "upstream_error")
        assert isinstance(response.body, bytes)
        self._note(status, response.content_type, response.body)
        return response

    def _note(self, status: int, content_type: str, body: bytes) -> None:
        self._status, self._content_type = status, content_type
        if self._kept is not None:
            self._kept += body


def _passed_on(answer: Answer) -> dict[str, str]:
    redact = answer.upstream.endpoint.redact
    return {
        name: redact(value)
        for name, value in answer.headers.items()
        if name.lower() not in _KEPT_BACK and not _UNSENDABLE.search(value)
    }
