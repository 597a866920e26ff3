"""The way of a request to its route, and what of it others can see."""

import asyncio
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from hypothesis import example, given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from osmosis_ai.rollout.server import create_rollout_server

from .harness import BODY, HeldBackend


def client_of(app: ASGIApp) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://server")


class Seeing:
    """Middleware that keeps what it sees of each request once that has been answered."""

    def __init__(self, app: ASGIApp, seen: list[dict[str, Any]]) -> None:
        self._app = app
        self._seen = seen

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)
        self._seen.append({**scope})


@pytest.fixture
def app() -> FastAPI:
    return create_rollout_server(backend=HeldBackend())


async def test_the_users_middleware_sees_which_route_it_was(app: FastAPI) -> None:
    """As metrics and traces do, which count by routes."""
    seen: list[dict[str, Any]] = []
    app.add_middleware(Seeing, seen=seen)
    async with client_of(app) as client:
        assert (await client.get("/rollout/r-1/status")).status_code == 200
    assert seen[0]["route"].path == "/rollout/{rollout_id:rollout_id}/status"
    assert seen[0]["path_params"] == {"rollout_id": "r-1"}
    assert seen[0]["endpoint"].__name__ == "rollout_status"


async def test_the_app_may_be_mounted_below_a_path(app: FastAPI) -> None:
    async with client_of(Starlette(routes=[Mount("/below", app)])) as client:
        accepted = await client.post("/below/rollout", json={**BODY, "rollout_id": "r-1"})
        assert accepted.status_code == 202
        assert (await client.get("/below/rollout/r-1/status")).json()["rollout_id"] == "r-1"
        assert (await client.get("/below/health")).status_code == 200
        assert (await client.get("/health")).status_code == 404


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/rollouts", 404),
        ("GET", "/rollout", 405),
        ("POST", "/health", 405),
        ("HEAD", "/health", 405),
        ("PUT", "/rollout/r-1/status", 405),
        ("GET", "/openapi.json", 200),
        ("GET", "/docs", 200),
    ],
)
async def test_other_requests_are_answered_as_by_any_app(
    app: FastAPI, method: str, path: str, status: int
) -> None:
    async with client_of(app) as client:
        assert (await client.request(method, path)).status_code == status


async def test_the_user_may_take_a_route_away_and_add_others(app: FastAPI) -> None:
    app.router.routes[:] = [r for r in app.routes if getattr(r, "path", "") != "/health"]

    @app.get("/health")
    async def health() -> str:
        return "mine"

    async with client_of(app) as client:
        assert (await client.get("/health")).json() == "mine"
        assert (await client.get("/rollout/r-1/status")).status_code == 200


async def ask(app: ASGIApp, kind: str, method: str, path: str, root_path: str) -> list[Any]:
    """Ask for a path that no client would send as it is, and return status and headers."""
    answer: list[Message] = []
    scope: Scope = {
        "type": kind,
        "method": method,
        "path": path,
        "raw_path": path.encode("utf-8", "surrogateescape"),
        "root_path": root_path,
        "query_string": b"",
        "headers": [(b"host", b"server")],
        "scheme": "http",
        "server": ("server", 80),
        "extensions": {"websocket.http.response": {}},
        "subprotocols": [],
    }

    async def receive() -> Message:
        return {"type": "websocket.connect" if kind == "websocket" else "http.request"}

    async def send(message: Message) -> None:
        answer.append(message)

    await app(scope, receive, send)
    return [answer[0]["type"], answer[0].get("status"), answer[0].get("headers")]


odd_paths = st.lists(
    st.sampled_from(["rollout", "result", "status", "cancel", "health", "below", "r-1", ""])
    | st.text(st.characters(codec="utf-8"), max_size=3),
    max_size=5,
).map(lambda parts: "/".join(["", *parts]))
requests = (
    st.sampled_from(["http", "websocket"]),
    st.sampled_from(["GET", "POST", "PUT", "HEAD", "OPTIONS"]),
    odd_paths,
    st.sampled_from(["", "/below", "/below/", "/"]),
)


@given(*requests)
@example("http", "GET", "/health\n", "")
@example("http", "GET", "/rollout//result", "")
@example("http", "GET", "/rollout/a\nb/status", "")
@example("http", "GET", "/rollout/\udcff/status", "")
@example("http", "GET", f"/rollout/{'x' * 70_000}/status", "")
@example("http", "POST", "/below/rollout", "/below")
@example("websocket", "GET", "/rollout/r-1/result", "")
def test_odd_requests_find_the_same_routes_as_in_any_app(
    kind: str, method: str, path: str, root_path: str
) -> None:
    """The short way to the routes takes no request that FastAPI would take elsewhere."""

    async def answers() -> list[list[Any]]:
        app = create_rollout_server(backend=HeldBackend())
        plain = FastAPI(routes=app.routes, openapi_url=None)
        return [await ask(each, kind, method, path, root_path) for each in (app, plain)]

    ours, plain = asyncio.run(answers())
    assert ours == plain


@given(*requests)
@example("http", "GET", "//health", "")
@example("http", "GET", "/below/health", "/below")
def test_no_request_gets_past_the_key(kind: str, method: str, path: str, root_path: str) -> None:
    """Whatever it asks for, and wherever the app is mounted."""

    async def answer() -> list[Any]:
        app = create_rollout_server(backend=HeldBackend(), api_key="secret")
        return await ask(app, kind, method, path, root_path)

    assert asyncio.run(answer())[1] == 401
