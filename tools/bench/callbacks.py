"""Measure callback delivery: a burst of results beside a floor, and a peer that fails.

Burst: rollouts that all finish in the same moment, and a prompt peer. The floor, taken in turns
with the server in the same run, is a bare app that takes the same POSTs and sends the same two
bodies over a session of aiohttp like the server's, and does nothing else. Every server is a process
of its own, so that CPU time is the server's alone. Compare the rows of one run, not runs.

Faults: rollouts that finish a number at a time, and a peer at which every fifth attempt fails at
random: resets, 500s, answers that do not come in time, break off, or ask to wait; never more than
three times in a row for one delivery.

    nox -s bench -- callbacks [--rollouts 4000] [--rounds 3]
    nox -s bench -- callbacks --faults [--rollouts 5000] [--at-once 64]

The exit status is 1 when something was not delivered, or a figure is above its limit.
"""

import argparse
import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp
import httpx

QUESTION: Final = {"role": "user", "content": "What is 2 + 2? " + "Think about it. " * 30}
ANSWER: Final = {"role": "assistant", "content": "It is 4. " * 100}
LONGEST_RATIO: Final = 3.0
HEALTH_EVERY_SEC: Final = 0.02
PATIENCE_SEC: Final = 120
HEALTH_LIMIT_SEC: Final = {"burst": 0.05, "faults": 0.25}


# The children's processes.


def our_app(gate: asyncio.Event | None) -> Any:
    """Return a rollout server whose workflows wait for the gate, if there is one."""
    from osmosis_ai.rollout import (
        AgentWorkflow,
        AgentWorkflowContext,
        Grader,
        GraderContext,
        LocalBackend,
    )
    from osmosis_ai.rollout.server import create_rollout_server

    class Answering(AgentWorkflow):
        async def run(self, ctx: AgentWorkflowContext) -> list[dict[str, Any]]:
            if gate is not None:
                await gate.wait()
            if ctx.metadata == {"fails": True}:
                raise ConnectionError
            return [*ctx.prompt, ANSWER]

    class Comparing(Grader):
        async def grade(self, ctx: GraderContext) -> None:
            ctx.set_reward(1.0)

    backend = LocalBackend(workflow=Answering, grader=Comparing)
    return create_rollout_server(backend=backend, configure_logging=False)


def floor_app(gate: asyncio.Event | None) -> Any:
    """Return a bare ASGI app that calls back twice for each POST, over the same connections."""
    from osmosis_ai.rollout.policy.transport import new_session

    ready: list[tuple[dict[str, Any], bytes]] = []
    completion = json.dumps({"status": "success", "rollout_id": "x" * 16}).encode()
    workers: set[asyncio.Task[None]] = set()

    async def work(session: aiohttp.ClientSession) -> None:
        while ready:
            request, graded = ready.pop()
            for url, body in (("completion", completion), ("grader", graded)):
                async with session.post(request[f"{url}_callback_url"], data=body) as response:
                    await response.read()

    async def deliver() -> None:
        assert gate is not None
        await gate.wait()
        async with new_session() as session:
            await asyncio.gather(*(work(session) for _ in range(64)))

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        body = b""
        if scope["path"] == "/rollout":
            while True:
                message = await receive()
                body += message["body"]
                if not message.get("more_body"):
                    break
            request = json.loads(body)
            sample = {"messages": [*request["initial_messages"], ANSWER], "reward": 1.0}
            ready.append((request, json.dumps({"status": "success", "sample": sample}).encode()))
            if not workers:
                workers.add(asyncio.create_task(deliver()))
        headers = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 202, "headers": headers})
        await send({"type": "http.response.body", "body": b"{}"})

    return app


APPS: Final[dict[str, Callable[[asyncio.Event | None], Any]]] = {
    "osmosis": our_app,
    "floor": floor_app,
}


def serve_peer() -> None:
    """Be a prompt peer; each line of stdin asks how many callbacks have arrived."""

    async def main() -> None:
        peer = Peer()
        async with await peer.start():
            print(peer.url, flush=True)
            while await asyncio.to_thread(sys.stdin.readline):
                print(json.dumps({"deliveries": peer.deliveries}), flush=True)

    asyncio.run(main())


def serve(name: str, gated: bool) -> None:
    """Serve on a free port; each line of stdin opens the gate, or asks for the usage so far."""
    import logging
    import socket

    import uvicorn

    logging.disable()

    async def main() -> None:
        gate = asyncio.Event() if gated else None
        # By its protocol's number, or else asyncio would leave Nagle's algorithm on.
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.bind(("127.0.0.1", 0))
        listener.listen(1024)
        app = APPS[name](gate)
        config = uvicorn.Config(app, log_level="warning", access_log=False, lifespan="auto")
        server = uvicorn.Server(config)
        loop = asyncio.get_running_loop()

        def obey() -> None:
            for line in sys.stdin:
                if line.strip() == "open" and gate is not None:
                    loop.call_soon_threadsafe(gate.set)
                print(json.dumps(usage_so_far()), flush=True)
            server.should_exit = True

        threading.Thread(target=obey, daemon=True).start()
        print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
        await server.serve(sockets=[listener])

    asyncio.run(main())


def usage_so_far() -> dict[str, float]:
    """Return the process's CPU seconds and, on Linux, its resident MB."""
    usage = {"cpu": time.process_time(), "mb": 0.0}
    if sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        usage["mb"] = pages * os.sysconf("SC_PAGE_SIZE") / 1e6
    return usage


@contextmanager
def child(*arguments: str, root: str) -> Iterator[tuple[str, Callable[[str], dict[str, float]]]]:
    """Start this file as a server; yield its URL and what gives it orders."""
    environ = {**os.environ, "_OSMOSIS_ROLLOUT_ARTIFACT_ROOT": root}
    command = [sys.executable, __file__, "--serve", *arguments]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ
    ) as process:
        source, sink = process.stdout, process.stdin
        assert source is not None
        assert sink is not None

        def order(line: str) -> dict[str, float]:
            print(line, file=sink, flush=True)
            usage: dict[str, float] = json.loads(source.readline())
            return usage

        try:
            yield source.readline().strip(), order
        finally:
            sink.close()


# The peer.


@dataclass
class Peer:
    """Takes callbacks, fails as it is told to, and keeps the story of each rollout."""

    fails: bool = False
    url: str = ""
    bodies: dict[str, dict[str, set[bytes]]] = field(default_factory=dict[str, Any])
    arrived: dict[str, asyncio.Event] = field(default_factory=dict[str, asyncio.Event])
    deliveries: int = 0
    attempts: int = 0
    _failures: dict[str, int] = field(default_factory=dict[str, int])
    _chance: random.Random = field(default_factory=lambda: random.Random(5))

    async def start(self) -> asyncio.Server:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0, backlog=2048)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        return server

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while not writer.is_closing():
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                raw = await reader.readexactly(int(_header(head, b"content-length:")))
                path = head.split(b" ", 2)[1].decode()
                key = _header(head, b"idempotency-key:").decode() if self.fails else ""
                await self._answer(path, key, raw, writer)
                await writer.drain()
        writer.close()

    async def _answer(self, path: str, key: str, raw: bytes, writer: asyncio.StreamWriter) -> None:
        self.attempts += 1
        if self.fails:
            _, channel, rollout_id = path.split("/")
            self.bodies.setdefault(rollout_id, {}).setdefault(channel, set()).add(raw)
            if self._failures.get(key, 0) < 3 and self._chance.random() < 0.2:
                self._failures[key] = self._failures.get(key, 0) + 1
                return await self._fail(writer)
            self._failures.pop(key, None)
            if channel == "graded":
                self.arrived[rollout_id].set()
        self.deliveries += 1
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    async def _fail(self, writer: asyncio.StreamWriter) -> None:
        match self._chance.randrange(5):
            case 0:
                writer.transport.abort()
            case 1:
                writer.write(b"HTTP/1.1 500 -\r\nContent-Length: 0\r\n\r\n")
            case 2:
                await asyncio.sleep(15)
                writer.transport.abort()
            case 3:
                writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"traj')
                writer.close()
            case _:
                writer.write(b"HTTP/1.1 429 -\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n")

    def contradictions(self) -> int:
        """Count the rollouts whose bodies do not agree with each other."""
        return sum(not _agree(seen) for seen in self.bodies.values())


def _header(head: bytes, name: bytes) -> bytes:
    return head.split(name)[1].split(b"\r\n")[0].strip()


def _agree(seen: dict[str, set[bytes]]) -> bool:
    if set(seen) != {"done", "graded"} or any(len(bodies) != 1 for bodies in seen.values()):
        return False
    done, graded = (json.loads(next(iter(seen[channel]))) for channel in ("done", "graded"))
    rewarded = graded["sample"] is not None and graded["sample"]["reward"] == 1.0
    return done["status"] == graded["status"] and rewarded == (graded["status"] == "success")


# The measurement.


class Health:
    """Asks a server for its health at a fixed rate, and keeps how long each answer took."""

    def __init__(self, client: httpx.AsyncClient, url: str) -> None:
        self._client = client
        self._url = f"{url}/health"
        self.seconds: list[float] = []

    async def watch(self) -> None:
        """Ask until cancelled; a slow answer does not delay the next question."""
        questions: set[asyncio.Task[None]] = set()
        while True:
            question = asyncio.create_task(self._ask(time.perf_counter()))
            questions.add(question)
            question.add_done_callback(questions.discard)
            await asyncio.sleep(HEALTH_EVERY_SEC)

    async def _ask(self, asked: float) -> None:
        await self._client.get(self._url)
        self.seconds.append(time.perf_counter() - asked)

    @property
    def p99(self) -> float:
        return statistics.quantiles(self.seconds, n=100)[98]


@contextmanager
def watching(health: Health) -> Iterator[None]:
    task = asyncio.create_task(health.watch())
    try:
        yield
    finally:
        task.cancel()


async def in_turns(one: Callable[[int], Awaitable[object]], at_once: int, count: int) -> None:
    """Do `one` for 0 to `count`, `at_once` at a time."""
    waiting = iter(range(count))

    async def worker() -> None:
        for number in waiting:
            await one(number)

    await asyncio.gather(*(worker() for _ in range(at_once)))


def new_client() -> httpx.AsyncClient:
    from osmosis_ai.rollout.client._transport import PooledTransport

    return httpx.AsyncClient(transport=PooledTransport(), timeout=120)


def rollout(peer: str, number: int) -> dict[str, Any]:
    return {
        "rollout_id": f"r-{number}",
        "initial_messages": [QUESTION],
        "label": "4",
        "chat_completions_url": "http://127.0.0.1:9/v1",
        "completion_callback_url": f"{peer}/done/r-{number}",
        "grader_callback_url": f"{peer}/graded/r-{number}",
    }


async def accept(client: httpx.AsyncClient, url: str, body: dict[str, Any]) -> None:
    answer = await client.post(f"{url}/rollout", json=body)
    if answer.status_code != 202:
        sys.exit(f"a rollout was refused with {answer.status_code}")


async def burst(name: str, count: int) -> dict[str, float]:
    """Let `count` rollouts finish in the same moment, and return what that cost."""
    with (
        tempfile.TemporaryDirectory() as root,
        child("peer", "", root=root) as (peer, ask),
        child(name, "gated", root=root) as (url, order),
    ):
        async with new_client() as client:
            before = order("usage")["cpu"]
            await in_turns(lambda n: accept(client, url, rollout(peer, n)), 64, count)
            accepted = order("usage")["cpu"]
            health = Health(client, url)
            with watching(health):
                await asyncio.sleep(0.1)
                opened = time.perf_counter()
                await asyncio.to_thread(order, "open")

                delivered = 0.0
                while delivered < 2 * count and time.perf_counter() - opened < PATIENCE_SEC:
                    await asyncio.sleep(0.1)
                    delivered = (await asyncio.to_thread(ask, ""))["deliveries"]
                seconds = time.perf_counter() - opened
            # What the server still does once everything has arrived counts, too.
            await asyncio.sleep(1)
            spent = order("usage")
    return {
        "delivered": delivered,
        "cpu_ms": 1e3 * (spent["cpu"] - before) / count,
        "post_ms": 1e3 * (accepted - before) / count,
        "sec": seconds,
        "health_p99": health.p99,
        "health_max": max(health.seconds),
        "health_p50": statistics.median(health.seconds),
        "mb": spent["mb"],
    }


def run_bursts(count: int, rounds: int) -> bool:
    """Print the burst beside the floor, medians of `rounds`; tell whether all limits are kept."""
    runs: dict[str, list[dict[str, float]]] = {"floor": [], "osmosis": []}
    for _ in range(rounds):
        for name, results in runs.items():
            results.append(asyncio.run(burst(name, count)))
    medians = {
        name: {key: statistics.median(r[key] for r in results) for key in results[0]}
        for name, results in runs.items()
    }
    print(f"{'':>10}" + "".join(f"{key:>12}" for key in medians["floor"]))
    for name, row in medians.items():
        print(f"{name:>10}" + "".join(f"{value:>12.4g}" for value in row.values()))
    ratio = medians["osmosis"]["cpu_ms"] / medians["floor"]["cpu_ms"]
    print(f"{count} rollouts at once: {ratio:.2f} times the floor's CPU")
    whole = all(r["delivered"] == 2 * count for results in runs.values() for r in results)
    p99 = medians["osmosis"]["health_p99"]
    return whole and ratio <= LONGEST_RATIO and p99 < HEALTH_LIMIT_SEC["burst"]


async def run_faults(count: int, at_once: int) -> bool:
    """Print how rollouts come through to a failing peer; tell whether all limits are kept."""
    peer = Peer(fails=True)
    with tempfile.TemporaryDirectory() as root, child("osmosis", "", root=root) as (url, order):
        async with new_client() as client, await peer.start():
            health = Health(client, url)
            started = time.perf_counter()
            print(f"{'rollouts':>10}{'deliveries':>12}{'attempts':>10}{'MB':>8}{'seconds':>9}")

            async def one(number: int) -> None:
                body = rollout(peer.url, number)
                peer.arrived[body["rollout_id"]] = asyncio.Event()
                if number % 4 == 0:
                    body["metadata"] = {"fails": True}
                await accept(client, url, body)
                await peer.arrived[body["rollout_id"]].wait()
                if (number + 1) % max(1, count // 10) == 0:
                    seconds = time.perf_counter() - started
                    figures = (
                        f"{peer.deliveries:>12}{peer.attempts:>10}{order('usage')['mb']:>8.0f}"
                    )
                    print(f"{number + 1:>10}{figures}{seconds:>9.0f}", flush=True)

            with watching(health):
                await in_turns(one, at_once, count)
    wrong = peer.contradictions()
    print(f"{peer.deliveries} of {2 * count} delivered, {wrong} rollouts with bodies that disagree")
    print(f"/health: p99 {1e3 * health.p99:.0f} ms, max {1e3 * max(health.seconds):.0f} ms")
    whole = peer.deliveries == 2 * count and not wrong
    return whole and health.p99 < HEALTH_LIMIT_SEC["faults"]


def main() -> None:
    """Run a measurement, or the server that one asks for."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--faults", action="store_true", help="measure with a peer that fails")
    parser.add_argument("--rollouts", type=int)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--at-once", type=int, default=64)
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve and options.serve[0] == "peer":
        serve_peer()
    elif options.serve:
        serve(options.serve[0], gated=options.serve[1] == "gated")
    elif options.faults:
        sys.exit(not asyncio.run(run_faults(options.rollouts or 5000, options.at_once)))
    else:
        sys.exit(not run_bursts(options.rollouts or 4000, options.rounds))


if __name__ == "__main__":
    main()
