"""One pool per event loop, and nothing left of it when the loop ends."""

import asyncio
import gc
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from osmosis_ai.rollout.policy import PolicyClient, close_policy_clients
from osmosis_ai.rollout.testing import Gate, PolicyRequest, Reply, ScriptedPolicy, reply

USER = {"role": "user", "content": "2+2?"}


class CountingServer:
    """Answers with fixed bytes and counts connections, open ones and all."""

    def __init__(self) -> None:
        self.accepted = 0
        self.closed = asyncio.Event()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        body = b'data: {"choices":[{"delta":{"content":"4"},"finish_reason":"stop"}]}\n\n'
        answer = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nSet-Cookie: a=b\r\n"
        answer += b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (len(body), body)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                assert b"cookie" not in head.lower()
                await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split()[0]))
                writer.write(answer)
                await writer.drain()
                # The end in packets of its own, as servers send it.
                writer.write(b"e\r\ndata: [DONE]\n\n\r\n")
                await writer.drain()
                writer.write(b"0\r\n\r\n")
        except asyncio.IncompleteReadError:
            self.closed.set()
        finally:
            writer.close()


async def test_calls_share_connections_and_no_cookies() -> None:
    """Calls of different clients, one after another, use one connection, until it is closed."""
    counter = CountingServer()
    async with await asyncio.start_server(counter, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        for _ in range(5):
            assert (await PolicyClient(url).complete([USER])).text == "4"
        assert counter.accepted == 1
        await close_policy_clients()
        await asyncio.wait_for(counter.closed.wait(), 20)
        assert (await PolicyClient(url).complete([USER])).text == "4"
        assert counter.accepted == 2
        await close_policy_clients()


async def test_closing_what_was_never_used_is_nothing() -> None:
    """A server that made no call can close all the same, twice too."""
    await close_policy_clients()
    await close_policy_clients()


async def test_closing_breaks_no_call_that_still_runs(serve: Callable[..., Any]) -> None:
    """Two apps on one loop: when one closes, the other's calls go on, and new ones work."""
    gate = Gate()
    client, policy = serve(reply("4").insert(1, gate), "5")
    running = asyncio.create_task(client.complete([USER]))
    await asyncio.to_thread(gate.wait)
    await asyncio.gather(close_policy_clients(), close_policy_clients())
    assert (await client.complete([USER])).text == "5"
    gate.open()
    assert (await running).text == "4"
    assert len(policy.requests) == 2


async def test_150_calls_run_at_once(serve: Callable[..., Any]) -> None:
    """No call waits for another's connection: all of them are at the endpoint together."""
    gate = Gate()

    def held(_: PolicyRequest) -> Reply:
        return reply("4").insert(0, gate)

    _, policy = serve()
    policy.respond = held
    calls = [asyncio.create_task(PolicyClient(policy.url).complete([USER])) for _ in range(150)]
    await asyncio.to_thread(gate.wait, 150, timeout=30)
    gate.open()
    assert {answered.text for answered in await asyncio.gather(*calls)} == {"4"}


def test_every_loop_has_its_own_pool_and_closes_it() -> None:
    """Loops that just end leave nothing behind: warnings are errors here."""
    with ScriptedPolicy(respond=lambda _: "4") as policy:

        async def calls() -> list[str]:
            client = PolicyClient(policy.url)
            return [(await client.complete([USER])).text for _ in range(3)]

        assert asyncio.run(calls()) == ["4"] * 3
        assert asyncio.run(calls()) == ["4"] * 3
        gc.collect()


async def test_loops_of_other_threads_have_their_own() -> None:
    """Frameworks' synchronous entry points run loops in threads, many at a time."""
    with ScriptedPolicy(respond=lambda _: "4") as policy:

        def in_a_loop() -> str:
            return asyncio.run(PolicyClient(policy.url).complete([USER])).text

        texts = await asyncio.gather(*(asyncio.to_thread(in_a_loop) for _ in range(30)))
    assert texts == ["4"] * 30


SCRIPT = """
import asyncio, sys
import osmosis_ai.rollout, osmosis_ai.rollout.policy as policy
assert "aiohttp" not in sys.modules

async def main():
    await policy.close_policy_clients()
    assert "aiohttp" not in sys.modules
    client = policy.PolicyClient(sys.argv[1])
    messages = [{"role": "user", "content": "?"}]
    texts = await asyncio.gather(*(client.complete(messages) for _ in "abc"))
    async for item in client.stream(messages):
        break
    print(*(reply.text for reply in texts), item.content)

asyncio.run(main())
"""


@pytest.mark.parametrize("flags", [["-W", "error"], ["-W", "error", "-X", "dev"]])
def test_a_script_imports_nothing_early_and_ends_silently(flags: list[str]) -> None:
    """aiohttp is imported at the first call only; a script's end warns of nothing left open."""
    with ScriptedPolicy(respond=lambda _: reply(["4", "2"])) as policy:
        command = [sys.executable, *flags, "-c", SCRIPT, policy.url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    noise = [line for line in done.stderr.splitlines() if not line.startswith("Executing <")]
    assert (done.stdout, noise) == ("42 42 42 4\n", [])
