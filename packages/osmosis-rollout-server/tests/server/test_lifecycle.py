"""Who may share what, and the order in which things open and close."""

import asyncio
import json
import re
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request, Response
from starlette.middleware.base import RequestResponseEndpoint

from osmosis_ai.rollout import (
    AgentWorkflow,
    AgentWorkflowConfig,
    AgentWorkflowContext,
    AgentWorkflowOutput,
    ExecutionOutcome,
    ExecutionRequest,
    LocalBackend,
    RolloutStatus,
)
from osmosis_ai.rollout.server import create_rollout_server
from osmosis_ai.rollout.types import POLLING_LEASE_HEADER

from .harness import BODY, Client, HeldBackend, ScriptedBackend, serving, succeeded


class Echo(AgentWorkflow[AgentWorkflowConfig]):
    """Answers by itself."""

    async def run(self, ctx: AgentWorkflowContext[AgentWorkflowConfig]) -> AgentWorkflowOutput:
        return AgentWorkflowOutput(messages=[*ctx.prompt, {"role": "assistant", "content": "4"}])


class Closing(HeldBackend):
    """Counts how often it was shut down."""

    shutdowns = 0

    async def shutdown(self) -> None:
        self.shutdowns += 1


async def test_health_shows_backend_process_and_lifecycle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_OSMOSIS_ROLLOUT_INSTANCE_ID", "instance-7")
    named = create_rollout_server(backend=LocalBackend(workflow=Echo))
    monkeypatch.delenv("_OSMOSIS_ROLLOUT_INSTANCE_ID")
    backend = HeldBackend()
    other_app = create_rollout_server(backend=backend)
    async with serving(named) as one, serving(other_app) as other:
        health = (await one.http.get("/health")).json()
        process_id = health["process_id"]
        assert health == {
            "status": "ok",
            "concurrency": {"max_concurrent": None, "queued": 0, "running": 0},
            "instance_id": "instance-7",
            "process_id": process_id,
            "lifecycle": {"accepting_rollouts": True, "active_rollouts": 0},
        }
        await other.start("r-1")
        health = (await other.http.get("/health")).json()
        assert health["instance_id"] == health["process_id"] == process_id
        assert health["lifecycle"]["active_rollouts"] == 1
        backend.release.set()
        await other.result("r-1")
        health = (await other.http.get("/health")).json()
        assert health["lifecycle"]["active_rollouts"] == 0


async def test_b10_a_workflow_that_blocks_only_delays_the_others() -> None:
    async def execute(request: ExecutionRequest) -> ExecutionOutcome:
        if request.id == "blocking":
            await asyncio.sleep(0.1)
            time.sleep(1)  # noqa: ASYNC251 - the fault that this test is about
        return succeeded()

    async with serving(create_rollout_server(backend=ScriptedBackend(execute))) as client:
        await client.start("blocking")
        await asyncio.sleep(0.2)
        assert (await client.http.get("/health")).status_code == 200
        assert (await client.post("r-2")).status_code == 202
        assert (await client.result("r-2"))["status"] == "success"


class Blocking(AgentWorkflow[AgentWorkflowConfig]):
    """Blocks the event loop in a task that it starts."""

    async def run(self, ctx: AgentWorkflowContext[AgentWorkflowConfig]) -> AgentWorkflowOutput:
        await asyncio.gather(self.compute())
        return AgentWorkflowOutput(messages=[])

    async def compute(self) -> None:
        await asyncio.sleep(0.1)
        time.sleep(2)  # noqa: ASYNC251 - the fault that this test is about


async def test_b10_the_log_names_the_rollout_that_holds_up_the_loop(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(create_rollout_server(backend=LocalBackend(workflow=Blocking))) as client:
        await client.start("r-1", initial_messages=[])
        await client.result("r-1")
        await asyncio.sleep(0.5)
    lines = [r.getMessage() for r in caplog.records if "event loop" in r.getMessage()]
    during, after = lines[0], lines[-1]
    assert "rollout r-1 in Blocking.compute (test_lifecycle.py:" in during
    assert "asyncio.to_thread" in during
    assert "held up by rollout r-1" in after
    stood_still = re.search(r"for ([0-9.]+) s", after)
    assert stood_still is not None
    assert float(stood_still[1]) > 1


async def test_b21_the_users_resources_open_first_and_close_after_the_rollouts() -> None:
    events: list[str] = []

    async def execute(request: ExecutionRequest) -> ExecutionOutcome:
        await asyncio.sleep(0.5)
        events.append("rollout ended")
        return succeeded()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[dict[str, Any]]:
        events.append("opened")
        try:
            yield {"pool": "the pool"}
        finally:
            await asyncio.sleep(0)
            events.append("closed")

    app = create_rollout_server(backend=ScriptedBackend(execute), lifespan=lifespan)

    @app.get("/pool")
    async def pool(request: Request) -> str:
        found: str = request.state.pool
        return found

    async with serving(app, tidy=False) as client:
        assert (await client.http.get("/pool")).json() == "the pool"
        await client.start("r-1")
        events.append("told to stop")
    assert events == ["opened", "told to stop", "rollout ended", "closed"]


async def test_a_lifespan_without_state_will_do() -> None:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        yield

    backend = HeldBackend()
    backend.release.set()
    async with serving(create_rollout_server(backend=backend, lifespan=lifespan)) as client:
        await client.start("r-1")
        assert (await client.result("r-1"))["status"] == "success"


async def test_two_apps_share_a_backend_and_the_last_one_shuts_it_down() -> None:
    backend = Closing()
    app, other_app = (create_rollout_server(backend=backend) for _ in range(2))
    async with serving(app) as client:
        async with serving(other_app) as other:
            await other.start("r-1")
            await client.start("r-2")
            # Each app knows its own rollouts only.
            assert (await client.status("r-1"))["status"] == "unknown"
            answer = await client.http.post("/rollout/cancel", json={"ids": ["r-1"]})
            assert answer.json()["dispositions"] == {"r-1": "not_found"}
        assert backend.shutdowns == 0
        backend.release.set()
        assert (await client.result("r-2"))["status"] == "success"
    assert backend.shutdowns == 1


# Importing the oldest Starlette's beside the newest anyio is enough for it.
@pytest.mark.filterwarnings("ignore:The anyio.abc.BlockingPortal alias:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:Using .httpx. with .starlette.testclient. is deprecated")
def test_a_test_client_may_be_entered_again() -> None:
    """One app, on another event loop each time, in a thread that gets no signals."""
    from fastapi.testclient import TestClient

    app = create_rollout_server(backend=LocalBackend(workflow=Echo))
    test_client = TestClient(app)
    for _ in range(2):
        with test_client as http:
            accepted = http.post("/rollout", json=BODY).json()
            url = f"/rollout/{accepted['rollout_id']}/result"
            headers = {POLLING_LEASE_HEADER: accepted["polling_lease_token"]}
            answer = accepted
            while not RolloutStatus(answer["status"]).is_final:
                answer = http.get(url, headers=headers).json()
        assert answer["status"] == "success"


def test_one_app_serves_one_event_loop_after_another() -> None:
    app = create_rollout_server(backend=LocalBackend(workflow=Echo))

    async def once() -> None:
        async with serving(app) as client:
            await client.start("r-1")
            assert (await client.result("r-1"))["status"] == "success"

    for _ in range(2):
        asyncio.run(once())


async def test_one_app_serves_two_event_loops_at_once() -> None:
    app = create_rollout_server(backend=LocalBackend(workflow=Echo))

    async def once() -> None:
        async with serving(app) as client:
            for number in range(20):
                await client.start(f"r-{number}")
            for number in range(20):
                assert (await client.result(f"r-{number}"))["status"] == "success"

    await asyncio.gather(asyncio.to_thread(asyncio.run, once()), once())


async def test_a_backend_that_fails_to_shut_down_holds_nothing_up() -> None:
    class Broken(HeldBackend):
        async def shutdown(self) -> None:
            raise RuntimeError

    closed = asyncio.Event()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        yield
        closed.set()

    async with serving(create_rollout_server(backend=Broken(), lifespan=lifespan)):
        pass
    assert closed.is_set()


async def test_a_rollout_outlives_its_request_under_the_users_middleware() -> None:
    backend = HeldBackend()
    app = create_rollout_server(backend=backend)

    @app.middleware("http")
    async def tag(request: Request, call_next: RequestResponseEndpoint) -> Response:
        answer = await call_next(request)
        answer.headers["X-Tag"] = "seen"
        return answer

    async with serving(app) as client:
        accepted = await client.post("r-1")
        assert accepted.headers["X-Tag"] == "seen"
        poll = asyncio.create_task(client.poll("r-1"))
        await asyncio.sleep(0.1)
        assert backend.running == {"r-1"}
        backend.release.set()
        assert (await poll).json()["status"] == "success"


async def test_a_client_that_leaves_while_it_sends_leaves_nothing_behind(
    caplog: pytest.LogCaptureFixture,
) -> None:
    backend = HeldBackend()
    async with serving(create_rollout_server(backend=backend)) as client:
        _, writer = await asyncio.open_connection("127.0.0.1", client.http.base_url.port)
        writer.write(b"POST /rollout HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        await writer.drain()
        await asyncio.sleep(0.1)
        writer.close()
        await writer.wait_closed()
        await asyncio.sleep(0.1)
        health = (await client.http.get("/health")).json()
    assert health["lifecycle"]["active_rollouts"] == 0
    assert backend.requests == []
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_a_client_that_leaves_after_its_request_loses_nothing() -> None:
    backend = HeldBackend()
    body = json.dumps({**BODY, "rollout_id": "r-1"}).encode()
    head = f"POST /rollout HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    async with serving(create_rollout_server(backend=backend)) as client:
        _, writer = await asyncio.open_connection("127.0.0.1", client.http.base_url.port)
        writer.write(head + body)
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        await client.until("r-1", "queued")
        backend.release.set()
        await client.until("r-1", "success")


class Speechless(HeldBackend):
    """Fails, or talks nonsense, whenever it is asked something."""

    def __init__(self, health: object = None) -> None:
        super().__init__()
        self.told = health

    def health(self) -> dict[str, Any]:
        if isinstance(self.told, Exception):
            raise self.told
        return self.told  # type: ignore[return-value]  # pyright: ignore[reportReturnType]


@pytest.mark.parametrize("told", [RuntimeError("sek-ret"), None], ids=["raises", "tells nothing"])
async def test_a_backend_that_cannot_tell_its_health_is_503(
    told: object, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(create_rollout_server(backend=Speechless(told))) as client:
        answer = await client.http.get("/health")
    assert answer.status_code == 503
    health = answer.json()
    assert health.pop("instance_id") == health.pop("process_id")
    assert health == {
        "status": "error",
        "lifecycle": {"accepting_rollouts": True, "active_rollouts": 0},
    }
    (line,) = [r.getMessage() for r in caplog.records if "health" in r.getMessage()]
    assert ("RuntimeError" if told else "TypeError") in line
    assert "sek-ret" not in caplog.text


def connected(app: FastAPI) -> httpx.AsyncClient:
    """A client of the app on this loop, with no server and no lifespan around it."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://app", timeout=40)


async def test_an_app_without_its_lifespan_executes_on_the_loop_that_asks() -> None:
    app = create_rollout_server(backend=LocalBackend(workflow=Echo))
    async with connected(app) as http:
        client = Client(http)
        await client.start("r-1")
        assert (await client.result("r-1"))["status"] == "success"


async def test_an_app_whose_lifespan_has_ended_admits_nothing_until_the_next_one() -> None:
    app = create_rollout_server(backend=LocalBackend(workflow=Echo))
    async with connected(app) as http:
        client = Client(http)
        for _ in range(2):
            async with app.router.lifespan_context(app):
                await client.start("r-1")
                assert (await client.result("r-1"))["status"] == "success"
            refused = await client.post("r-2")
            assert refused.status_code == 503
            assert refused.json()["detail"][0]["type"] == "shutting_down"
            health = (await http.get("/health")).json()
            assert health["lifecycle"] == {"accepting_rollouts": False, "active_rollouts": 0}


LOGGING = """
import logging, sys
from osmosis_ai.rollout.server import create_rollout_server
from osmosis_ai.rollout import AgentWorkflow, LocalBackend

class Nothing(AgentWorkflow):
    async def run(self, ctx):
        return []

root = logging.getLogger()
if "own" in sys.argv:
    root.addHandler(logging.NullHandler())
before = [*root.handlers], root.level
for _ in range(2):
    backend = LocalBackend(workflow=Nothing)
    create_rollout_server(backend=backend, configure_logging="off" not in sys.argv)
print("as before" if ([*root.handlers], root.level) == before else
      f"{len(root.handlers)} at {logging.getLevelName(root.level)}")
"""


@pytest.mark.parametrize(
    ("given", "told"), [("none", "1 at INFO"), ("own", "as before"), ("off", "as before")]
)
def test_logging_is_configured_only_where_nobody_has(given: str, told: str) -> None:
    """In a process of its own: here the test runner has."""
    command = [sys.executable, "-c", LOGGING, given]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=50)
    assert ended.stdout.strip() == told
