"""A chat-completions endpoint on loopback: the part that every policy here has in common."""

import asyncio
import itertools
import json
import threading
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Literal, Self, cast

from osmosis_ai.rollout.testing._http import HttpError, HttpRequest, Reader, read_request
from osmosis_ai.rollout.testing._replies import Reply, error_reply, unstreamed
from osmosis_ai.rollout.testing._sending import ClientGoneError, Sender
from osmosis_ai.rollout.testing._server import ServerThread

# One fixed day, so that the same script gives the same bytes in every run.
_SCRIPTED_DAY: Final = 1_735_689_600

type Outcome = Literal["open", "answered", "cut", "disconnected"]
"""How a request ended: answered whole, cut (as scripted, or by the server's end), or left by its
client."""


@dataclass(eq=False)
class PolicyRequest:
    """One request for a completion, as the endpoint got it.

    Attributes:
        number: 1 for the first request, in order of arrival.
        path: The path that was asked for, without the query.
        headers: By lower-case name.
        body: The parsed body.
        outcome: How the request ended; `open` while it is being answered.
        query: The query of what was asked for, without the question mark.
    """

    number: int
    path: str
    headers: dict[str, str] = field(repr=False)
    body: dict[str, Any] = field(repr=False)
    outcome: Outcome = "open"
    query: str = field(default="", repr=False)
    _ended: threading.Event = field(default_factory=threading.Event, init=False, repr=False)

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The conversation that was sent."""
        return cast("list[dict[str, Any]]", self.body["messages"])

    def wait(self, *, timeout: float = 10.0) -> Outcome:
        """Block until the request has ended and return how it did.

        In an async test, call it through `asyncio.to_thread`.

        Raises:
            TimeoutError: it is still open after `timeout` seconds.
        """
        if not self._ended.wait(timeout):
            msg = f"request {self.number} is still open after {timeout} s"
            raise TimeoutError(msg)
        return self.outcome

    def end(self, outcome: Outcome) -> None:
        """Note how the request ended."""
        self.outcome = outcome
        self._ended.set()


class ChatEndpoint(ABC):
    """Serves `POST .../chat/completions` over HTTP/1.1 while its `with` block runs.

    Any path with that ending will do, so base URLs that are scoped to a rollout work too.
    Requests that are wrong by themselves get a 4xx and never reach the policy.
    """

    def __init__(self) -> None:
        self._server = ServerThread(self._serve)
        self._port: int | None = None
        self._numbers = itertools.count(1)

    @property
    def root_url(self) -> str:
        """The server's URL without a path.

        Raises:
            RuntimeError: the endpoint is not running.
        """
        if self._port is None:
            msg = f"{type(self).__name__} is not running: use it in a with statement"
            raise RuntimeError(msg)
        return f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        self._port = self._server.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.stop()
        self._port = None

    @abstractmethod
    def _answer(self, request: PolicyRequest) -> Reply:
        """Return the reply to a valid request; called in the server's thread, one at a time.

        Raises:
            HttpError: there is none; the error's status and message are sent.
        """

    async def _serve(self, reader: Reader, writer: asyncio.StreamWriter) -> None:
        with suppress(ClientGoneError):
            while request := await self._next_request(reader, writer):
                if not await self._exchange(request, reader, writer):
                    return

    async def _next_request(
        self, reader: Reader, writer: asyncio.StreamWriter
    ) -> HttpRequest | None:
        try:
            return await read_request(reader, writer)
        except HttpError as error:
            refusal = error_reply(error.status, error.message, headers={"Connection": "close"})
            await Sender(refusal, {}, reader, writer).send()
            return None

    async def _exchange(
        self, http: HttpRequest, reader: Reader, writer: asyncio.StreamWriter
    ) -> bool:
        """Answer one request and return whether the connection can take another."""
        request, reply = self._receive(http)
        outcome: Outcome = "cut"
        try:
            if await Sender(reply, self._envelope(request), reader, writer).send():
                outcome = "answered"
        except ClientGoneError:
            outcome = "disconnected"
        finally:
            if request:
                request.end(outcome)
        keep = reply.framed and http.headers.get("connection", "").lower() != "close"
        return outcome == "answered" and keep

    def _receive(self, http: HttpRequest) -> tuple[PolicyRequest | None, Reply]:
        request: PolicyRequest | None = None
        try:
            body = _body(http)
            request = PolicyRequest(
                next(self._numbers), http.path, http.headers, body, query=http.query
            )
            return request, self._as_asked(self._answer(request), request)
        except HttpError as error:
            return request, error_reply(error.status, error.message)

    def _as_asked(self, reply: Reply, request: PolicyRequest) -> Reply:
        if reply.completion is None or request.body.get("stream") is True:
            return reply
        whole = {**self._envelope(request), "object": "chat.completion", **reply.completion}
        return unstreamed(reply, json.dumps(whole).encode())

    def _envelope(self, request: PolicyRequest | None) -> dict[str, Any]:
        if request is None:
            return {}
        return {
            "id": f"chatcmpl-{request.number}",
            "object": "chat.completion.chunk",
            "created": self._created(),
            "model": request.body.get("model", "scripted"),
        }

    def _created(self) -> int:
        """Return the time that an answer says it was made, in seconds since the epoch."""
        return _SCRIPTED_DAY


def _body(http: HttpRequest) -> dict[str, Any]:
    if not http.path.endswith("/chat/completions"):
        raise HttpError(404, "only paths that end in /chat/completions are served")
    if http.method != "POST":
        raise HttpError(405, "chat completions are asked for by POST")
    try:
        body: object = json.loads(http.body)
    except (ValueError, RecursionError):
        raise HttpError(400, "the body is not JSON") from None
    if not isinstance(body, dict):
        raise HttpError(400, "the body is not a JSON object")
    fields = cast("dict[str, Any]", body)
    messages: object = fields.get("messages")
    if not isinstance(messages, list) or not all(
        isinstance(message, dict) for message in cast("list[object]", messages)
    ):
        raise HttpError(400, "messages must be a list of objects")
    return fields
