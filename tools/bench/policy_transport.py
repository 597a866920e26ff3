#!/usr/bin/env -S uv run --script
# /// script
# requires-python = ">=3.12"
# dependencies = ["httpx==0.28.1", "httpx-aiohttp==0.2.0", "httpx2==2.16.2", "aiohttp>=3.10"]
# ///
"""Compare HTTP transports for the policy client: CPU per streamed call, and failures.

Each measurement is a process of its own that keeps a number of streams open at once against an
endpoint in another process, so its CPU time is the client's alone. Rounds take turns over the
transports, and the table shows medians: compare rows of one run, not runs.

    uv run tools/bench/policy_transport.py [--rounds N] [--streams 1 64 512]
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

CHUNKS: Final = 20
CHUNK_GAP_SEC: Final = 0.02
CALLS: Final = {1: 40, 64: 512, 512: 1536}
REQUEST: Final = json.dumps({"messages": [{"role": "user", "content": "x" * 4000}]}).encode()
WHOLE: Final = b'"finish_reason":"stop"'


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer every request on a connection with a stream of `CHUNKS` events."""
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
            writer.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                b"Transfer-Encoding: chunked\r\n\r\n"
            )
            for number in range(CHUNKS):
                await asyncio.sleep(CHUNK_GAP_SEC)
                reason = b'"stop"' if number == CHUNKS - 1 else b"null"
                event = b'data: {"choices":[{"delta":{"content":"w%d"},"finish_reason":%s}]}\n\n'
                data = event % (number, reason)
                writer.write(b"%x\r\n%s\r\n" % (len(data), data))
            writer.write(b"0\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def serve() -> None:
    """Serve on a free port of loopback until standard input closes."""
    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=2048)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)


type Post = Callable[[str], Awaitable[bytes]]
"""Sends the request to a URL and returns the answer's body."""


def posting_with(client: Any) -> Post:
    """Return what posts with a client of httpx's API."""

    async def post(url: str) -> bytes:
        async with client.stream("POST", url, content=REQUEST) as response:
            return b"".join([data async for data in response.aiter_bytes()])

    return post


@asynccontextmanager
async def aiohttp_client() -> AsyncIterator[Post]:
    """aiohttp by itself, without a limit on connections."""
    import aiohttp

    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=4.0),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=600),
    ) as session:

        async def post(url: str) -> bytes:
            async with session.post(url, data=REQUEST) as response:
                return b"".join([data async for data in response.content.iter_any()])

        yield post


@asynccontextmanager
async def httpx_client() -> AsyncIterator[Post]:
    """httpx on its own transport, without a limit on connections."""
    import httpx

    async with httpx.AsyncClient(
        limits=httpx.Limits(max_connections=None, keepalive_expiry=4.0),
        timeout=httpx.Timeout(600, connect=30, pool=None),
    ) as client:
        yield posting_with(client)


@asynccontextmanager
async def httpx_default_client() -> AsyncIterator[Post]:
    """httpx as it comes: 100 connections, and waiting for one counts as a failure."""
    import httpx

    async with httpx.AsyncClient() as client:
        yield posting_with(client)


@asynccontextmanager
async def httpx_aiohttp_client() -> AsyncIterator[Post]:
    """httpx over aiohttp's connector, without a limit on connections."""
    import aiohttp
    import httpx
    from httpx_aiohttp import AiohttpTransport

    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=4.0),
        cookie_jar=aiohttp.DummyCookieJar(),
    )
    async with httpx.AsyncClient(
        transport=AiohttpTransport(client=session),
        timeout=httpx.Timeout(600, connect=30, pool=None),
    ) as client:
        yield posting_with(client)


@asynccontextmanager
async def httpx2_client() -> AsyncIterator[Post]:
    """httpx2 on its own transport, without a limit on connections."""
    import httpx2

    async with httpx2.AsyncClient(
        limits=httpx2.Limits(max_connections=None, keepalive_expiry=4.0),
        timeout=httpx2.Timeout(600, connect=30, pool=None),
    ) as client:
        yield posting_with(client)


TRANSPORTS: Final[dict[str, Callable[[], Any]]] = {
    "httpx": httpx_client,
    "httpx (default pool)": httpx_default_client,
    "httpx-aiohttp": httpx_aiohttp_client,
    "httpx2": httpx2_client,
    "aiohttp": aiohttp_client,
}


async def measure(transport: str, streams: int, url: str) -> dict[str, float]:
    """Make the calls for one cell of the table and return what they cost."""
    calls = CALLS.get(streams, streams * 2)
    waiting = iter(range(calls))
    failures = 0

    async def caller(post: Post) -> None:
        nonlocal failures
        for _ in waiting:
            try:
                failures += WHOLE not in await post(url)
            except Exception:
                failures += 1

    async with TRANSPORTS[transport]() as post:
        # The first call pays for imports and the TLS context.
        await post(url)
        cpu, wall = time.process_time(), time.perf_counter()
        await asyncio.gather(*(caller(post) for _ in range(streams)))
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return {"cpu_ms": 1000 * cpu / calls, "wall_sec": wall, "failed": failures, "calls": calls}


def run_child(*arguments: str) -> dict[str, float]:
    """Run one measurement in a process of its own."""
    command = [sys.executable, __file__, "--measure", *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    result: dict[str, float] = json.loads(done.stdout)
    return result


def compare(rounds: int, streams: list[int]) -> None:
    """Measure every cell `rounds` times in turns and print the medians."""
    command = [sys.executable, __file__, "--serve"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        url = f"http://127.0.0.1:{server.stdout.readline().strip()}/v1/chat/completions"
        print(f"{'streams':>7}  {'transport':<22}{'CPU ms/call':>12}{'ratio':>7}{'failed':>8}")
        for count in streams:
            runs: dict[str, list[dict[str, float]]] = {name: [] for name in TRANSPORTS}
            for _ in range(rounds):
                for name, results in runs.items():
                    results.append(run_child(name, str(count), url))
            report(count, runs)
        assert server.stdin is not None
        server.stdin.close()


def report(streams: int, runs: dict[str, list[dict[str, float]]]) -> None:
    """Print one row per transport; ratios are to the first."""
    costs = {
        name: statistics.median(r["cpu_ms"] for r in results) for name, results in runs.items()
    }
    base = next(iter(costs.values()))
    for name, cost in costs.items():
        failed = statistics.median(r["failed"] / r["calls"] for r in runs[name])
        row = f"{streams:>7}  {name:<22}{cost:>12.2f}{cost / base:>7.2f}{failed:>8.0%}"
        print(row, flush=True)


def main() -> None:
    """Run the comparison, or the part of it that a child process is asked for."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--streams", type=int, nargs="+", default=list(CALLS))
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve())
    elif options.measure:
        name, streams, url = options.measure
        print(json.dumps(asyncio.run(measure(name, int(streams), url))))
    else:
        compare(options.rounds, options.streams)


if __name__ == "__main__":
    main()
