"""The routes: from HTTP to the service and back."""

import functools
import logging
import os
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, override

import orjson
from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import ClientDisconnect
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send

from osmosis_ai.rollout.backend import ExecutionBackend
from osmosis_ai.rollout.server._admission import IDEMPOTENCY_HEADER
from osmosis_ai.rollout.server._bodies import parse_body, read_body
from osmosis_ai.rollout.server._lifecycle import Services
from osmosis_ai.rollout.server._refusals import Refusal, refuse
from osmosis_ai.rollout.server._wire import polled_body
from osmosis_ai.rollout.types import (
    POLLING_LEASE_HEADER,
    CancelRolloutsRequest,
    RolloutStatus,
    check_path_segment,
    json_safe,
)

_log = logging.getLogger(__name__)


class _AnyId(Convertor[str]):
    """Matches whatever stands in an id's place, so that a bad id is refused as an id."""

    regex = "(?s:.*)"

    @override
    def convert(self, value: str) -> str:
        return value

    @override
    def to_string(self, value: str) -> str:
        return value


register_url_convertor("rollout_id", _AnyId())


class DirectRoute(APIRoute):
    """A documented route whose endpoint takes the request and makes the answer by itself."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, endpoint, **options)
        # FastAPI's handler, and the exit stacks around it, would cost more than all of ours.
        self.app = _answer_with(endpoint)


def _answer_with(endpoint: Callable[[Request], Awaitable[Response]]) -> ASGIApp:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            response = await endpoint(Request(scope, receive))
        except Refusal as refusal:
            response = refusal.response()
        await response(scope, receive, send)

    return app


class Shortcut:
    """ASGI middleware that takes requests straight to the direct routes at the head of an app's.

    On the way through FastAPI's router there are layers for dependencies and exception handlers,
    which these routes have none of, and which cost more than the answers do.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request for one of the routes, and pass any other on."""
        app = _direct_app(scope) if scope["type"] == "http" else None
        await (app or self._app)(scope, receive, send)


def _direct_app(scope: Scope) -> ASGIApp | None:
    if "fastapi.telemetry" in scope:
        return None  # FastAPI's own tracing is told of routes by its router
    for route in scope["app"].routes:
        if not isinstance(route, DirectRoute):
            break
        match, found = route.matches(scope)
        if match is Match.FULL:
            scope.update(found)
            return route.app
    return None


class Routes:
    """The endpoints of one app."""

    def __init__(self, services: Services, backend: ExecutionBackend, max_body_bytes: int) -> None:
        self._services = services
        self._backend = backend
        self._max_body_bytes = max_body_bytes
        self._instance_id = os.environ.get("_OSMOSIS_ROLLOUT_INSTANCE_ID") or None

    async def create_rollout(self, request: Request) -> Response:
        """Accept a rollout; its result can be polled from now on."""
        body = await self._body(request)
        key = request.headers.get(IDEMPOTENCY_HEADER)
        return _json(await self._services.current().admission.admit(body, key), 202)

    async def rollout_result(self, request: Request) -> Response:
        """Wait for news of a rollout, and answer with its status or its result."""
        rollout_id = _path_id(request)
        token = request.headers.get(POLLING_LEASE_HEADER)
        if token is None:
            msg = "send the lease token that the answer to POST /rollout gave"
            raise refuse(422, ("header", POLLING_LEASE_HEADER), msg, "missing")
        service = self._services.current()
        rollout = service.registry.get(rollout_id)
        if rollout is None:
            msg = "no rollout of this id is known: it was never accepted, or its retention is over"
            raise refuse(404, ("path", "rollout_id"), msg, "unknown_rollout")
        if not rollout.lease.matches(token):
            msg = "the token is not this rollout's: send the one that POST /rollout gave for it"
            raise refuse(403, ("header", POLLING_LEASE_HEADER), msg, "wrong_lease")
        await service.poll(rollout)
        if rollout.final is not None:
            return _json(polled_body(rollout.final))
        return _json(orjson.dumps({"rollout_id": rollout.id, "status": rollout.status}))

    async def rollout_status(self, request: Request) -> Response:
        """Tell where a rollout stands now."""
        rollout_id = _path_id(request)
        service = self._services.current()
        rollout = service.registry.get(rollout_id)
        if rollout is not None:
            service.executor.refresh(rollout)
        final = None if rollout is None else rollout.final
        status = {
            "rollout_id": rollout_id,
            "status": RolloutStatus.UNKNOWN if rollout is None else rollout.status,
            "reward": None if final is None else final.reward,
            "err_message": None if final is None else final.ending.err_message,
        }
        return _json(orjson.dumps(status))

    async def cancel_rollouts(self, request: Request) -> Response:
        """Stop rollouts, by their ids, by a prefix of their ids, or all of them."""
        chosen = parse_body(CancelRolloutsRequest, await self._body(request))
        dispositions = self._services.current().cancel(chosen)
        return _json(orjson.dumps({"dispositions": dispositions}))

    async def health(self, request: Request) -> Response:
        """Tell how the backend is, which process this is, and whether it accepts rollouts."""
        service = self._services.current()
        process_id = _process_id(os.getpid())
        told = self._backend_health()
        health = {
            **({"status": "error"} if told is None else told),
            "instance_id": self._instance_id or process_id,
            "process_id": process_id,
            "lifecycle": {
                "accepting_rollouts": service.admission.is_open,
                "active_rollouts": service.registry.active,
            },
        }
        return _json(orjson.dumps(health), 503 if told is None else 200)

    def _backend_health(self) -> dict[str, Any] | None:
        try:
            told, _ = json_safe({**self._backend.health()}, on_bad="replace")
        except Exception as error:
            # A boundary: whatever a user's backend does here, the server tells of itself.
            _log.error("The backend cannot tell its health: %s.", type(error).__name__)
            return None
        return told

    async def _body(self, request: Request) -> bytes:
        try:
            return await read_body(request, self._max_body_bytes)
        except ClientDisconnect:
            msg = "the client left before the whole body had come"
            raise refuse(400, ("body",), msg, "client_disconnected") from None


@functools.cache
def _process_id(pid: int) -> str:
    # Keyed by the pid: a forked worker is another process.
    return uuid.uuid4().hex


def _path_id(request: Request) -> str:
    try:
        return check_path_segment(request.path_params["rollout_id"])
    except ValueError as error:
        raise refuse(422, ("path", "rollout_id"), str(error), "value_error") from None


def _json(body: bytes, status: int = 200) -> Response:
    return Response(body, status, media_type="application/json")
