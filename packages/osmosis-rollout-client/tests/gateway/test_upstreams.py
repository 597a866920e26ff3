"""Which upstream gets a call, how often it is tried, and how it is asked for token ids."""

import asyncio
import socket
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from between import QUESTION, Start

from osmosis_ai.rollout.testing import Gate, ScriptedPolicy, error_reply, reply, stream_reply


def nobody() -> str:
    """Return a URL where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}/v1"


async def test_retry_after_is_waited_for(between: Start) -> None:
    """The rollout never sees the 429, only an answer that took a while."""
    busy = error_reply(429, headers={"Retry-After": "0"})
    with ScriptedPolicy(busy, busy, busy, busy, "4") as upstream:
        async with between(upstream.url) as rollout:
            assert (await rollout.policy.complete(QUESTION)).text == "4"
            found = await rollout.findings()
    assert len(upstream.requests) == 5
    assert found == {"retried": "call 1 answered only after another try"}


async def test_retry_at_once_is_no_busy_loop(between: Start) -> None:
    """One that says so and refuses again is asked after longer and longer waits."""
    busy = error_reply(429, headers={"Retry-After": "0"})
    began = time.monotonic()
    with ScriptedPolicy(*[busy] * 6, "4") as upstream:
        async with between(upstream.url) as rollout:
            assert (await rollout.policy.complete(QUESTION)).text == "4"
    assert time.monotonic() - began > 0.05 * (1 + 2 + 4 + 8 + 16 + 32)


async def test_another_upstream_is_asked_meanwhile(between: Start) -> None:
    """One that wants no call for a while gets none."""
    busy = error_reply(429, headers={"Retry-After": "30"})
    with ScriptedPolicy(busy) as one, ScriptedPolicy("4", "5") as other:
        async with between(one.url, other.url) as rollout:
            assert (await rollout.policy.complete(QUESTION)).text == "4"
            assert (await rollout.policy.complete(QUESTION)).text == "5"
    assert (len(one.requests), len(other.requests)) == (1, 2)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Retry-After": "soon"},
        {"Retry-After": "3600"},
        {"Retry-After": "Mon, 01 Jan 99999999999999999999 00:00:00 GMT"},
    ],
)
async def test_a_429_that_names_no_near_time_goes_on(
    between: Start, headers: dict[str, str]
) -> None:
    """The rollout decides what to do."""
    with ScriptedPolicy(error_reply(429, "slow down", headers=headers)) as upstream:
        async with between(upstream.url) as rollout:
            response = await rollout.ask()
    assert response.status_code == 429
    assert response.json()["error"]["message"] == "slow down"
    assert response.headers.get("retry-after") == headers.get("Retry-After")


async def test_a_dead_upstream_is_passed_over(between: Start) -> None:
    """Calls are answered as long as one is alive; 502, 503 and 504 count as dead."""
    with (
        ScriptedPolicy(error_reply(503), error_reply(503)) as ill,
        ScriptedPolicy("4", "5") as well,
    ):
        async with between(nobody(), ill.url, well.url) as rollout:
            texts = [(await rollout.policy.complete(QUESTION)).text for _ in range(2)]
            found = await rollout.findings()
    assert texts == ["4", "5"]
    assert "retried" in found


async def test_a_dead_upstream_is_left_alone_for_a_while(between: Start) -> None:
    """It does not get every call first only because it has none under way."""
    with ScriptedPolicy("4", "5", "6") as well:
        async with between(nobody(), well.url) as rollout:
            for _ in range(3):
                await rollout.policy.complete(QUESTION)
            assert await rollout.findings() == {"retried": "call 1 answered only after another try"}


async def test_nobody_answers(between: Start) -> None:
    """The rollout hears of a failing endpoint, and which it was."""
    url = nobody()
    async with between(url) as rollout:
        response = await rollout.ask()
        found = await rollout.findings()
    assert response.status_code == 502
    message = response.json()["error"]["message"]
    assert f"Connection refused ({url}/chat/completions)" in message
    assert found == {"failed": f"call 1 failed: {message}"}


async def test_the_least_busy_gets_the_call(between: Start) -> None:
    """Calls spread evenly; who is done first gets more."""
    gates = [Gate(), Gate()]
    answer = reply("4")
    with (
        ScriptedPolicy(respond=lambda _: answer.insert(0, gates[0])) as one,
        ScriptedPolicy(respond=lambda _: answer.insert(0, gates[1])) as other,
    ):
        async with between(one.url, other.url) as rollout:
            calls = [asyncio.create_task(rollout.ask()) for _ in range(6)]
            await asyncio.gather(*(asyncio.to_thread(gate.wait, 3) for gate in gates))
            gates[1].open()
            await asyncio.to_thread(other.requests[2].wait)
            calls += [asyncio.create_task(rollout.ask()) for _ in range(3)]
            await asyncio.to_thread(other.wait_for_requests, 6)
            assert len(one.requests) == 3
            gates[0].open()
            assert {(await call).status_code for call in calls} == {200}


async def test_no_more_calls_than_the_cap(between: Start) -> None:
    """The others wait in line, and one that leaves the line frees no place that it never had."""
    gate = Gate()
    with ScriptedPolicy(respond=lambda _: stream_reply(gate)) as upstream:
        async with between(upstream.url, max_calls=2) as rollout:
            calls = [asyncio.create_task(rollout.ask()) for _ in range(4)]
            await asyncio.to_thread(gate.wait, 2)
            calls.pop().cancel()
            await rollout.call_back()  # one more exchange: the others had their time
            assert gate.arrivals == 2
            gate.open()
            await asyncio.gather(*calls)
        assert len(upstream.requests) == 3


async def test_the_key_goes_to_the_upstream_alone(between: Start) -> None:
    """The rollout's own bearer does not."""
    with ScriptedPolicy("4") as keyed, ScriptedPolicy("4") as open_to_all:
        async with between(keyed.url, upstream_key="sk-secret") as rollout:
            await rollout.ask()
            bearer = rollout.endpoint.key
        rollout.output.rmdir()
        async with between(open_to_all.url) as rollout:
            await rollout.ask()
            assert rollout.endpoint.key != bearer
    assert keyed.requests[0].headers["authorization"] == "Bearer sk-secret"
    assert "authorization" not in open_to_all.requests[0].headers


async def test_b27_the_environments_proxy(between: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other machines are reached through it, loopback is not, and a failure names it."""
    with ScriptedPolicy("4", "5") as proxy, ScriptedPolicy("6") as near:
        monkeypatch.setenv("http_proxy", proxy.root_url.replace("//", "//me:sesame@"))
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        async with between("http://gpu-1.invalid/v1", upstream_key="sk-secret") as rollout:
            assert (await rollout.ask()).json()["choices"][0]["message"]["content"] == "4"
        rollout.output.rmdir()
        async with between(near.url) as rollout:
            assert (await rollout.ask()).json()["choices"][0]["message"]["content"] == "6"
        rollout.output.rmdir()
    headers = proxy.requests[0].headers
    assert headers["authorization"] == "Bearer sk-secret"
    assert headers["proxy-authorization"] == "Basic bWU6c2VzYW1l"
    async with between("http://gpu-1.invalid/v1") as rollout:
        told = (await rollout.ask()).json()["error"]["message"]
        monkeypatch.setenv("http_proxy", "socks5://127.0.0.1:1")
        refused = (await rollout.ask()).json()["error"]["message"]
    assert "through the environment's proxy http://127.0.0.1" in told
    assert "sesame" not in told
    assert "only http:// and https:// ones can be used" in refused


@asynccontextmanager
async def engine(owner: str, asked: list[dict[str, Any]], base: str = "/v1") -> AsyncGenerator[str]:
    """Serve an engine that says whose it is, to those who come with the base URL's query."""
    path, _, query = base.partition("?")

    async def models(request: web.Request) -> web.Response:
        assert request.query_string == query
        return web.json_response({"data": [{"id": "real", "owned_by": owner}]})

    async def chat(request: web.Request) -> web.Response:
        asked.append(await request.json())
        choice = {"index": 0, "message": {"content": "4"}, "finish_reason": "stop"}
        return web.json_response({"choices": [choice]})

    app = web.Application()
    app.router.add_get(f"{path}/models", models)
    app.router.add_post(f"{path}/chat/completions", chat)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}{base}"
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(
    ("owner", "parameters"),
    [
        ("vllm", {"return_token_ids"}),
        ("sglang", {"return_meta_info", "return_prompt_token_ids"}),
        ("llamacpp", set()),
        ("library", set()),
        ("openai-internal", set()),
        ("me", {"return_token_ids", "return_meta_info", "return_prompt_token_ids"}),
    ],
)
async def test_each_engine_is_asked_in_its_own_spelling(
    between: Start, owner: str, parameters: set[str]
) -> None:
    """Its list of models says which one it is; strict ones get nothing that they do not know."""
    asked: list[dict[str, Any]] = []
    async with engine(owner, asked) as url, between(url, token_ids=True) as rollout:
        assert (await rollout.ask()).status_code == 200
    assert asked[0].keys() - {"model", "messages"} == parameters | {"logprobs"}


async def test_the_models_are_beside_the_chat(between: Start) -> None:
    """They are below the base URL, whatever stands in its path and its query."""
    asked: list[dict[str, Any]] = []
    base = "/chat/completions/v1?to=/chat/completions"
    async with engine("vllm", asked, base) as url, between(url, token_ids=True) as rollout:
        assert (await rollout.ask()).status_code == 200
    assert asked[0].keys() - {"model", "messages"} == {"return_token_ids", "logprobs"}
