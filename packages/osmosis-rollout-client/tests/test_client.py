"""RolloutClient against a scripted server on a real socket."""

import asyncio
import gc
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from osmosis_ai.rollout.client import (
    RolloutAdmissionTimeoutError,
    RolloutClient,
    RolloutHandle,
    RolloutProtocolError,
)
from osmosis_ai.rollout.policy.transport import tls_context
from osmosis_ai.rollout.types import RolloutStatus

POLICY = "http://127.0.0.1:9/v1"
PROMPT = [{"role": "user", "content": "2+2?"}]
LEASE = {
    "status": "queued",
    "polling_lease_token": "lease-1",
    "result_wait_timeout_sec": 5,
    "polling_lease_timeout_sec": 30,
}


@dataclass
class Request:
    """What the server was asked."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Answer:
    """What the server says; `None` in its place breaks the connection."""

    status: int
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict[str, str])

    def encode(self) -> bytes:
        content = self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()
        head = [f"HTTP/1.1 {self.status} X", f"Content-Length: {len(content)}"]
        head += [f"{name}: {value}" for name, value in self.headers.items()]
        return "\r\n".join([*head, "", ""]).encode() + content


type Handler = Callable[[Request], Awaitable[Answer | None]]


@dataclass
class Server:
    """A server that answers as its `handler` says and remembers what it was asked."""

    handler: Handler
    url: str = ""
    requests: list[Request] = field(default_factory=list[Request])
    connections: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])

    def asked(self, method: str, path: str) -> list[Request]:
        return [r for r in self.requests if (r.method, r.path) == (method, path)]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if task := asyncio.current_task():
            self.connections.add(task)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                first, *lines = head.decode().split("\r\n")[:-2]
                headers = {n.lower(): v for n, v in (line.split(": ", 1) for line in lines)}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                method, path, _ = first.split(" ")
                request = Request(method, path, headers, body)
                self.requests.append(request)
                answer = await self.handler(request)
                if answer is None:
                    break
                writer.write(answer.encode())
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def serving(handler: Handler) -> AsyncGenerator[Server]:
    """Serve on a free port of loopback."""
    server = Server(handler)
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    server.url = f"http://127.0.0.1:{port}"
    try:
        yield server
    finally:
        listener.close()
        for task in server.connections:
            task.cancel()
        await asyncio.gather(*server.connections, return_exceptions=True)


@asynccontextmanager
async def connected(
    handler: Handler, **options: Any
) -> AsyncGenerator[tuple[Server, RolloutClient]]:
    """Serve, and connect a client."""
    async with serving(handler) as server, RolloutClient(url=server.url, **options) as client:
        yield server, client


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what the server has to see; the test's timeout bounds it."""
    while not condition():  # noqa: ASYNC110 - the condition is no event
        await asyncio.sleep(0.01)


def in_turn(*answers: Answer | None) -> Handler:
    """Answer in this order, whatever is asked; the last answer stays."""
    remaining = list(answers)

    async def handler(request: Request) -> Answer | None:
        return remaining.pop(0) if len(remaining) > 1 else remaining[0]

    return handler


def accepted(rollout_id: str = "r-1", **changes: Any) -> Answer:
    return Answer(202, {"rollout_id": rollout_id, **LEASE, **changes})


def result(status: str, **fields: Any) -> Answer:
    return Answer(200, {"rollout_id": "r-1", "status": status, **fields})


SUCCESS = result("success", sample={"messages": PROMPT, "reward": 1.0})


async def test_a_rollout_from_request_to_result() -> None:
    """The request holds what was given and no more; polls carry the lease; the result is typed."""
    handler = in_turn(accepted(), result("running"), result("grading"), SUCCESS)
    async with connected(handler) as (server, client):
        answer = await client.run_rollout(
            [{"role": "assistant", "content": None}],
            POLICY,
            "r-1",
            llm_api_key="sek-ret",
            label="4",
            metadata={"gone": None, "n": 0},
            agent_timeout_sec=3,
        )
    assert answer.status is RolloutStatus.SUCCESS
    assert answer.sample is not None
    assert answer.sample.reward == 1.0
    assert server.requests[0].json == {
        "initial_messages": [{"role": "assistant", "content": None}],
        "chat_completions_url": POLICY,
        "rollout_id": "r-1",
        "llm_api_key": "sek-ret",
        "label": "4",
        "metadata": {"gone": None, "n": 0},
        "grade": True,
        "agent_timeout_sec": 3.0,
    }
    polls = server.asked("GET", "/rollout/r-1/result")
    assert len(polls) == 3
    assert {poll.headers["x-osmosis-rollout-lease"] for poll in polls} == {"lease-1"}
    assert "authorization" not in server.requests[0].headers


async def test_a_rollout_may_call_back_and_be_polled() -> None:
    """The callbacks' URLs and their key go along; no error repeats the key."""
    hooks: dict[str, Any] = {
        "completion_callback_url": "http://127.0.0.1:9/completed",
        "grader_callback_url": "http://127.0.0.1:9/graded",
        "controller_api_key": "controller-key",
    }
    async with connected(in_turn(accepted(), SUCCESS)) as (server, client):
        answer = await client.run_rollout(PROMPT, POLICY, "r-1", **hooks)
    assert answer.status is RolloutStatus.SUCCESS
    assert server.requests[0].json.items() >= hooks.items()
    refusal = Answer(422, {"detail": "bad key: controller-key"})
    async with connected(in_turn(refusal)) as (_, client):
        with pytest.raises(RolloutProtocolError) as caught:
            await client.run_rollout(PROMPT, POLICY, "r-1", **hooks)
    assert "controller-key" not in str(caught.value)


async def test_ids_are_quoted_and_the_servers_key_is_sent() -> None:
    """An id is one path segment, whatever it holds; every request carries the server's key."""
    handler = in_turn(accepted("%2e ~ü?"), SUCCESS)
    async with connected(handler, api_key="server-key") as (server, client):
        await client.run_rollout(PROMPT, POLICY, "%2e ~ü?")
    assert server.requests[1].path == "/rollout/%252e%20~%C3%BC%3F/result"
    assert {r.headers["authorization"] for r in server.requests} == {"Bearer server-key"}


async def test_429_is_asked_again_until_there_is_room() -> None:
    """A server without capacity is asked again after the time that it named."""
    busy = Answer(429, {}, {"Retry-After": "0.01"})
    async with connected(in_turn(busy, busy, accepted(), SUCCESS)) as (server, client):
        await client.run_rollout(PROMPT, POLICY, "r-1")
    posts = server.asked("POST", "/rollout")
    assert len(posts) == 3
    assert len({post.body for post in posts}) == 1


@pytest.mark.parametrize("retry_after", ["5", "1e9", "nan", "inf", "-3", "soon", ""])
async def test_admission_ends_at_its_deadline(retry_after: str) -> None:
    """However long the server says to wait, the deadline decides."""
    busy = Answer(429, {}, {"Retry-After": retry_after})
    async with connected(in_turn(busy), admission_timeout_sec=0.2) as (server, client):
        with pytest.raises(RolloutAdmissionTimeoutError, match="no capacity"):
            await client.run_rollout(PROMPT, POLICY, "r-1")
    assert len(server.requests) >= 2


@pytest.mark.parametrize("status", [301, 400, 401, 404, 409, 413, 422, 500, 502, 503, 504])
async def test_the_post_is_not_repeated_after_a_refusal(status: int) -> None:
    """What is neither 202 nor 429 is an error that tells the status."""
    async with connected(in_turn(Answer(status, {"detail": "no"}))) as (server, client):
        with pytest.raises(RolloutProtocolError, match=rf"{status}: no$") as caught:
            await client.run_rollout(PROMPT, POLICY, "r-1")
    assert caught.value.status_code == status
    assert len(server.requests) == 1


async def test_the_post_is_not_repeated_after_a_broken_connection() -> None:
    """The rollout may be running by then, so the caller decides."""
    async with connected(in_turn(None)) as (server, client):
        with pytest.raises(RolloutProtocolError, match="no answer") as caught:
            await client.run_rollout(PROMPT, POLICY, "r-1")
    assert caught.value.status_code is None
    assert len(server.requests) == 1


async def test_result_reads_survive_a_restarting_gateway() -> None:
    """Reads are tried again after 502, 503, 504 and broken connections."""
    faults = [Answer(502, b"<html>"), None, Answer(503), Answer(504)]
    handler = in_turn(accepted(), *faults, result("running"), None, SUCCESS)
    async with connected(handler) as (server, client):
        answer = await client.run_rollout(PROMPT, POLICY, "r-1")
    assert answer.status is RolloutStatus.SUCCESS
    assert len(server.asked("POST", "/rollout")) == 1


@pytest.mark.parametrize(("fault", "status"), [(Answer(503), 503), (None, None)])
async def test_result_reads_end_with_the_lease(fault: Answer | None, status: int | None) -> None:
    """Once the lease must have run out, the last fault is the error."""
    handler = in_turn(accepted(polling_lease_timeout_sec=0.3), fault)
    async with connected(handler) as (server, client):
        with pytest.raises(RolloutProtocolError) as caught:
            await client.run_rollout(PROMPT, POLICY, "r-1")
    assert caught.value.status_code == status
    assert len(server.requests) >= 2


@pytest.mark.parametrize("status", [403, 404, 422, 500])
async def test_other_answers_to_a_read_are_final(status: int) -> None:
    """A wrong lease or an unknown id does not get better by asking again."""
    async with connected(in_turn(accepted(), Answer(status, {"detail": "no"}))) as (server, client):
        with pytest.raises(RolloutProtocolError) as caught:
            await client.run_rollout(PROMPT, POLICY, "r-1")
    assert caught.value.status_code == status
    assert len(server.requests) == 2


@pytest.mark.parametrize("body", [b"", b"\xff\xfe", b"[" * 5000, [], {"status": "odd"}])
async def test_nonsense_is_a_protocol_error(body: Any) -> None:
    """A 202 or a 200 that is not what the protocol says."""
    for handler in (in_turn(Answer(202, body)), in_turn(accepted(), Answer(200, body))):
        async with connected(handler) as (_, client):
            with pytest.raises(RolloutProtocolError, match="the rollout server's answer to"):
                await client.run_rollout(PROMPT, POLICY, "r-1")


async def test_b24_errors_never_show_keys() -> None:
    """Servers that echo the request, in whatever way, cannot put keys into our errors."""
    echo = [{"loc": ["body", "x"], "msg": "Field required llm-key", "input": {"k": "llm-key"}}]
    for detail in (echo, "bad keys: llm-key and server-key", {"input": "llm-key"}, ["llm-key"]):
        async with connected(in_turn(Answer(422, {"detail": detail})), api_key="server-key") as (
            _,
            client,
        ):
            with pytest.raises(RolloutProtocolError) as caught:
                await client.run_rollout(PROMPT, POLICY, "r-1", llm_api_key="llm-key")
            assert "llm-key" not in str(caught.value) + repr(client)
            assert "server-key" not in str(caught.value) + repr(client)


async def test_a_password_in_the_url_serves_unless_there_is_a_key() -> None:
    """As for the policy's URL; no error shows it."""
    for api_key, sent in ((None, "Basic dXNlcjpwYXNzLXdvcmQ="), ("k", "Bearer k")):
        async with serving(in_turn(Answer(401, {"detail": "not pass-word"}))) as server:
            url = server.url.replace("http://", "http://user:pass-word@")
            async with RolloutClient(url=url, api_key=api_key) as client:
                with pytest.raises(RolloutProtocolError) as caught:
                    await client.health()
        assert server.requests[0].headers["authorization"] == sent
        assert "pass-word" not in str(caught.value)


@pytest.mark.parametrize("key", ["k\n", "", " ", "ключ"])
async def test_b26_unusable_keys_are_refused_unseen(key: str) -> None:
    """A key that cannot be a header's value is refused before anything is sent."""
    with pytest.raises(ValueError, match="usable in a header") as caught:
        RolloutClient(url="http://127.0.0.1:9", api_key=key)
    assert repr(key)[1:-1].strip() == "" or repr(key) not in str(caught.value)
    async with RolloutClient(url="http://127.0.0.1:9") as client:
        with pytest.raises(ValueError, match="llm_api_key") as caught:
            client.run_rollout_async(PROMPT, POLICY, "r-1", llm_api_key=key)
    assert repr(key)[1:-1].strip() == "" or repr(key) not in str(caught.value)


async def test_unusable_arguments_are_the_callers_errors() -> None:
    """What the protocol or JSON cannot hold is refused before a task starts."""
    async with RolloutClient(url="http://127.0.0.1:9") as client:
        for bad_id in ("../x", "", "a/b", "."):
            with pytest.raises(ValueError, match="path segment"):
                client.run_rollout_async(PROMPT, POLICY, bad_id)
        with pytest.raises(ValueError, match="JSON"):
            client.run_rollout_async(PROMPT, POLICY, "r", metadata={"x": float("nan")})
        with pytest.raises(TypeError):
            client.run_rollout_async(PROMPT, POLICY, "r", metadata={"x": object()})
    with pytest.raises(ValueError, match="http"):
        RolloutClient(url="ftp://example.com")


async def test_b27_loopback_bypasses_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy in the environment does not get what is meant for this machine."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "")
    async with connected(in_turn(accepted(), SUCCESS)) as (_, client):
        await client.run_rollout(PROMPT, POLICY, "r-1")


async def test_certificates_that_cannot_be_read_are_no_answer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """As an error of the client's own, which names the setting."""
    request.addfinalizer(tls_context.cache_clear)
    tls_context.cache_clear()
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "missing.pem"))
    async with RolloutClient(url="https://server.invalid") as client:
        with pytest.raises(RolloutProtocolError, match="SSL_CERT_FILE cannot be read"):
            await client.health()


class Gate:
    """A server that plays the protocol: each status is held back until the test releases it."""

    def __init__(self) -> None:
        self.statuses: asyncio.Queue[str] = asyncio.Queue()
        self.cancelled: list[str] = []

    async def __call__(self, request: Request) -> Answer | None:
        if request.path == "/rollout":
            return accepted(request.json["rollout_id"])
        if request.path == "/rollout/cancel":
            ids = request.json["ids"]
            self.cancelled += ids
            self.statuses.put_nowait("cancelled")
            return Answer(200, {"dispositions": {i: "cancelled_running" for i in ids}})
        return result(await self.statuses.get())


async def test_a_handle_follows_its_rollout() -> None:
    """Status and latest result move on with the server's answers; waiters wake in their turn."""
    gate = Gate()
    async with connected(gate) as (_, client):
        handle = client.run_rollout_async(PROMPT, POLICY, "r-1")
        assert isinstance(handle, RolloutHandle)
        assert (handle.status, handle.latest_result, handle.done()) == ("queued", None, False)
        gate.statuses.put_nowait("running")
        assert await handle.wait_for_running() is RolloutStatus.RUNNING
        assert handle.latest_result is not None
        grading = asyncio.ensure_future(handle.wait_for_grading())
        gate.statuses.put_nowait("grading")
        assert await grading is RolloutStatus.GRADING
        gate.statuses.put_nowait("success")
        final = await handle
        assert final is await handle.wait_for_completion()
        assert (handle.status, handle.latest_result, handle.done()) == ("success", final, True)


async def test_waiters_do_not_miss_a_rollout_that_skips_states() -> None:
    """Waiting for a state that is over, or never came, ends with the rollout."""
    async with connected(in_turn(accepted(), result("failure", err_message="x"))) as (
        _,
        client,
    ):
        handle = client.run_rollout_async(PROMPT, POLICY, "r-1")
        assert await handle.wait_for_grading() is RolloutStatus.FAILURE
        assert await handle.wait_for_running() is RolloutStatus.FAILURE


async def test_waiters_get_the_error() -> None:
    """A rollout that was refused fails every wait, and no wait hangs."""
    async with connected(in_turn(Answer(409, {"detail": "known"}))) as (_, client):
        handle = client.run_rollout_async(PROMPT, POLICY, "r-1")
        for wait in (handle.wait_for_running, handle.wait_for_grading):
            with pytest.raises(RolloutProtocolError, match="known"):
                await wait()


async def test_cancel_stops_a_running_rollout() -> None:
    """The server is told, and the handle ends with the server's own terminal answer."""
    gate = Gate()
    async with connected(gate) as (_, client):
        handle = client.run_rollout_async(PROMPT, POLICY, "r-1")
        gate.statuses.put_nowait("running")
        await handle.wait_for_running()
        await handle.cancel()
        assert (await handle).status is RolloutStatus.CANCELLED
        assert await client.cancel_rollout("other") == "cancelled_running"
    assert gate.cancelled == ["r-1", "other"]


async def test_cancel_before_admission_sends_nothing_more() -> None:
    """A rollout that waits for room ends as cancelled and never starts."""
    async with connected(in_turn(Answer(429, {}, {"Retry-After": "60"}))) as (server, client):
        handle = client.run_rollout_async(PROMPT, POLICY, "r-1")
        await until(lambda: len(server.requests) > 0)
        await handle.cancel()
        assert (await handle).status is RolloutStatus.CANCELLED
    assert len(server.requests) == 1


async def test_a_cancelled_caller_cancels_its_rollout() -> None:
    """`run_rollout` under a timeout does not leave the rollout running."""
    gate = Gate()
    async with connected(gate) as (_, client):
        gate.statuses.put_nowait("running")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await client.run_rollout(PROMPT, POLICY, "r-1")
    assert gate.cancelled == ["r-1"]


async def test_a_cancelled_waiter_leaves_the_rollout_alone() -> None:
    """Cancelling one task that waits on a handle ends that wait only."""
    gate = Gate()
    async with connected(gate) as (_, client):
        handle = client.run_rollout_async(PROMPT, POLICY, "r-1")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await handle
        assert not handle.done()
        gate.statuses.put_nowait("success")
        assert (await handle).status is RolloutStatus.SUCCESS
    assert gate.cancelled == []


async def test_b20_rollouts_survive_garbage_collection() -> None:
    """The client holds on to rollouts whose handle is not kept."""
    gate = Gate()
    async with connected(gate) as (server, client):
        for number in range(50):
            client.run_rollout_async(PROMPT, POLICY, f"r-{number}")

        def all_polled() -> bool:
            gc.collect()
            return len({r.path for r in server.requests if r.method == "GET"}) == 50

        await until(all_polled)


async def test_closing_the_client_ends_every_wait() -> None:
    """A wait on a closed client's rollout is an error, not a cancellation of the waiter."""
    gate = Gate()
    async with serving(gate) as server:
        client = RolloutClient(url=server.url)
        waiting = asyncio.ensure_future(client.run_rollout(PROMPT, POLICY, "r-1"))
        await until(lambda: len(server.requests) == 2)
        await client.aclose()
        with pytest.raises(RuntimeError, match="closed before rollout 'r-1' ended"):
            await waiting


async def test_a_passed_http_client_stays_open() -> None:
    """The caller's HTTP client is used and left to the caller."""
    async with (
        serving(in_turn(accepted(), SUCCESS)) as server,
        httpx.AsyncClient(headers={"X-Mine": "1"}, trust_env=False) as mine,
    ):
        async with RolloutClient(url=server.url + "/", http_client=mine) as client:
            await client.run_rollout(PROMPT, POLICY, "r-1")
        assert not mine.is_closed
        assert server.requests[0].headers["x-mine"] == "1"


def test_a_client_may_be_made_before_its_loop() -> None:
    """Making one needs no event loop; using it does."""
    client = RolloutClient(url="http://127.0.0.1:9")

    async def use() -> None:
        async with client:
            await client.health()

    with pytest.raises(RolloutProtocolError, match="no answer"):
        asyncio.run(use())


async def test_wait_idle() -> None:
    """It returns when no rollout is active, and raises when that takes too long or is not told."""

    def health(active: int) -> Answer:
        return Answer(200, {"status": "ok", "lifecycle": {"active_rollouts": active}})

    async with connected(in_turn(health(2), health(1), health(0))) as (server, client):
        await client.wait_idle(poll_interval_sec=0.01)
        assert len(server.requests) == 3
        assert (await client.health())["status"] == "ok"
    async with connected(in_turn(health(1))) as (server, client):
        with pytest.raises(TimeoutError):
            await client.wait_idle(timeout_sec=0.1, poll_interval_sec=0.01)
    for odd in ({"status": "ok"}, [1]):
        async with connected(in_turn(Answer(200, odd))) as (server, client):
            with pytest.raises(RolloutProtocolError, match="health"):
                await client.wait_idle()
