"""The gateway's HTTP server: who may call, and in which form errors go out.

Errors have OpenAI's shape, `{"error": {"message", "type", "param", "code"}}`, and repeat nothing of
what was sent: there may be keys in it.
"""

import hmac
import json
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, cast

from aiohttp import web

type Handler = Callable[[web.Request, str], Awaitable[web.StreamResponse]]
"""Answers a request of a rollout, by its id."""

MAX_BODY_BYTES: Final = 64 * 1024 * 1024
"""The longest request that is taken."""
_BACKLOG: Final = 1024
# aiohttp's tracebacks of requests that are no HTTP hold what was sent, and tear the display.
_UNHEARD: Final = logging.Logger(__name__, logging.CRITICAL)


class Refusal(Exception):
    """A request that the gateway itself answers with an error.

    Attributes:
        status: The HTTP status.
        message: What is wrong, for people.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class GatewayServer:
    """Serves the routes below `/v1/rollouts/{id}` on a free port of loopback.

    Args:
        bearer: What opens it.
        routes: What answers POST, by the rest of the path.
    """

    def __init__(self, bearer: str, routes: Mapping[str, Handler]) -> None:
        self._authorization = f"Bearer {bearer}".encode()
        self._routes = routes
        self._runner: web.AppRunner | None = None
        self._port = 0

    @property
    def url(self) -> str:
        """The URL below which rollouts have theirs."""
        return f"http://127.0.0.1:{self._port}/v1/rollouts"

    async def start(self) -> None:
        """Begin to serve.

        Raises:
            OSError: there is no port.
        """
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        app.router.add_route("*", "/{path:.*}", self._answer)
        # Who goes away ends its call upstream.
        self._runner = web.AppRunner(
            app, handler_cancellation=True, access_log=None, shutdown_timeout=1.0, logger=_UNHEARD
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, backlog=_BACKLOG).start()
        self._port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """End all calls, and stop to serve."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        try:
            handler, rollout_id = self._route(request)
            return await handler(request, rollout_id)
        except Refusal as refusal:
            return error_response(refusal.status, refusal.message)
        except Exception as error:  # the boundary: one call's failure is told to that call
            if request.transport is None or request.transport.is_closing():
                raise
            return error_response(500, f"the gateway failed ({type(error).__name__})")

    def _route(self, request: web.Request) -> tuple[Handler, str]:
        given = request.headers.get("Authorization", "").encode(errors="surrogateescape")
        if not hmac.compare_digest(given, self._authorization):
            raise Refusal(401, "this needs the key that the rollout was given")
        head, _, rest = request.path.removeprefix("/v1/rollouts/").partition("/")
        handler = self._routes.get(rest)
        if handler is None or not request.path.startswith("/v1/rollouts/"):
            raise Refusal(404, "there is only /v1/rollouts/{id}/chat/completions here")
        if request.method != "POST":
            raise Refusal(405, "chat completions are asked for by POST")
        return handler, head


async def json_body(request: web.Request) -> dict[str, Any]:
    """Return a request's body.

    Raises:
        Refusal: it is too long, or no JSON object.
    """
    try:
        body: object = json.loads(await request.read(), parse_constant=_finite, parse_float=_finite)
    except web.HTTPRequestEntityTooLarge:
        msg = f"the body is longer than {MAX_BODY_BYTES // 1024 // 1024} MiB"
        raise Refusal(413, msg) from None
    except web.RequestPayloadError:
        raise Refusal(400, "the body cannot be decoded") from None
    except (ValueError, RecursionError):
        raise Refusal(400, "the body is not JSON") from None
    if not isinstance(body, dict):
        raise Refusal(400, "the body is not a JSON object")
    return cast("dict[str, Any]", body)


def error_response(status: int, message: str, kind: str | None = None) -> web.Response:
    """Return an error in OpenAI's shape."""
    kind = kind or ("invalid_request_error" if status < 500 else "server_error")
    error = {"message": message, "type": kind, "param": None, "code": None}
    return web.json_response({"error": error}, status=status)


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(text)
    return number
