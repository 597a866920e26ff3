"""Measure what a rollout costs the server, beside a floor that only makes the HTTP exchanges.

A rollout is one POST, long polls until it has ended and one look at its status: three exchanges
when nothing is polled in vain. Ours runs a workflow, grades, and writes the trajectory to the disk;
the floor is a Starlette app that answers three exchanges on the same HTTP server. Each is a process
of its own, asked for its CPU time between runs, and they take turns. Compare the rows of one run,
not runs.

    nox -s bench -- rollout_price [--rounds N] [--rollouts N] [--concurrency 1 64]
    nox -s bench -- rollout_price --queued 100 1000 5000
    nox -s bench -- rollout_price --together 4000
"""

import argparse
import asyncio
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

BODY: Final = {
    "initial_messages": [{"role": "user", "content": "What is 2 + 2?"}],
    "chat_completions_url": "http://127.0.0.1:9/v1",
    "label": "4",
}
LEASE_HEADER: Final = "X-Osmosis-Rollout-Lease"
FINAL: Final = {"success", "failure", "cancelled"}
# What may run at once where rollouts wait in line.
LINE_LIMIT: Final = 64
LINE_RETENTION_SEC: Final = 15.0
PROBE_PAUSE_SEC: Final = 0.005


# The servers' processes.


def rollout_app(kind: str, released: Any) -> Any:
    """Return our server: its workflow answers at once, or when it is `released`."""
    from osmosis_ai.rollout import (
        AgentWorkflow,
        AgentWorkflowConfig,
        AgentWorkflowContext,
        ConcurrencyConfig,
        Grader,
        GraderContext,
        LocalBackend,
    )
    from osmosis_ai.rollout.server import create_rollout_server

    class Answer(AgentWorkflow):
        async def run(self, ctx: AgentWorkflowContext) -> list[dict[str, Any]]:
            await released.wait()
            return [*ctx.prompt, {"role": "assistant", "content": "The answer is 4."}]

    class Contains(Grader):
        async def grade(self, ctx: GraderContext) -> None:
            assert ctx.sample is not None
            ctx.set_reward(float(str(ctx.label) in ctx.sample.messages[-1]["content"]))

    limit = LINE_LIMIT if kind == "line" else None
    config = AgentWorkflowConfig(name="bench", concurrency=ConcurrencyConfig(max_concurrent=limit))
    backend = LocalBackend(workflow=Answer, workflow_config=config, grader=Contains)
    # Long enough to read all, and short enough that the run sees the memory given back.
    retention = LINE_RETENTION_SEC if kind == "line" else 30.0
    return create_rollout_server(
        backend=backend, configure_logging=False, result_retention_sec=retention
    )


def floor_app() -> Any:
    """Return an app that makes the same exchanges and nothing else."""
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

    known: dict[str, dict[str, Any]] = {}

    async def create(request: Request) -> Response:
        body = await request.json()
        known[body["rollout_id"]] = body
        answer = {"rollout_id": body["rollout_id"], "polling_lease_token": "none"}
        return JSONResponse(answer, 202)

    async def result(request: Request) -> Response:
        body = known[request.path_params["id"]]
        sample = {"messages": body["initial_messages"], "label": body["label"], "reward": 1.0}
        answer = {"rollout_id": body["rollout_id"], "status": "success", "sample": sample}
        return JSONResponse(answer)

    async def status(request: Request) -> Response:
        body = known.pop(request.path_params["id"])
        return JSONResponse({"rollout_id": body["rollout_id"], "status": "success", "reward": 1.0})

    return Starlette(
        routes=[
            Route("/rollout", create, methods=["POST"]),
            Route("/rollout/{id}/result", result),
            Route("/rollout/{id}/status", status),
        ]
    )


def serve(kind: str) -> None:
    """Serve on a free port; for every line of stdin, print what the process has used so far."""
    import socket

    import uvicorn

    released = asyncio.Event()
    if kind != "together":
        released.set()
    app = floor_app() if kind == "floor" else rollout_app(kind, released)
    # By its protocol's number, or else asyncio would leave Nagle's algorithm on.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen(4096)
    # Connections wait for their turn here, which is no reason to drop them.
    settings: Any = {"log_level": "warning", "access_log": False, "timeout_keep_alive": 60}
    server = uvicorn.Server(uvicorn.Config(app, **settings))

    def obey(loop: asyncio.AbstractEventLoop) -> None:
        for line in sys.stdin:
            if line.strip() == "release":
                loop.call_soon_threadsafe(released.set)
            else:
                print(json.dumps(usage_so_far()), flush=True)
        server.should_exit = True

    async def run() -> None:
        loop = asyncio.get_running_loop()
        threading.Thread(target=obey, args=[loop], daemon=True).start()
        await server.serve(sockets=[listener])

    print(f"{listener.getsockname()[1]}", flush=True)
    asyncio.run(run())


def usage_so_far() -> dict[str, float]:
    """Return the process's CPU seconds and, on Linux, its resident MB."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    usage = {"cpu": used.ru_utime + used.ru_stime, "mb": used.ru_maxrss / 1e3}
    if sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        usage["mb"] = pages * os.sysconf("SC_PAGE_SIZE") / 1e6
    return usage


@dataclass
class Child:
    """A server's process: its port, and its standard streams to talk through."""

    port: int
    process: subprocess.Popen[str]

    def ask(self) -> dict[str, float]:
        """Return what the process has used so far."""
        self.tell("usage")
        assert self.process.stdout is not None
        usage: dict[str, float] = json.loads(self.process.stdout.readline())
        return usage

    def tell(self, order: str) -> None:
        """Send one line."""
        assert self.process.stdin is not None
        print(order, file=self.process.stdin, flush=True)


@contextmanager
def child(*arguments: str, root: str = "") -> Iterator[Child]:
    """Start this file as another process."""
    environ = {**os.environ, "_OSMOSIS_ROLLOUT_ARTIFACT_ROOT": root}
    with subprocess.Popen(
        [sys.executable, __file__, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environ,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield Child(int(process.stdout.readline()), process)
        process.stdin.close()


# The client. It is made by hand, so that it leaves the machine to the servers, and sends what httpx
# sends.

HEADERS: Final = (
    "host: 127.0.0.1:8000\r\naccept: */*\r\naccept-encoding: gzip, deflate\r\n"
    "connection: keep-alive\r\nuser-agent: python-httpx/0.28.1\r\n"
)


class Connection:
    """One kept connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def to(cls, port: int) -> "Connection":
        """Connect."""
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def ask(self, method: str, path: str, body: bytes = b"", lease: str = "") -> Any:
        """Make one exchange and return the answer's JSON; anything but a 2xx ends the run."""
        head = f"{method} {path} HTTP/1.1\r\n{HEADERS}"
        if lease:
            head += f"{LEASE_HEADER}: {lease}\r\n"
        if body:
            head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
        self._writer.write(head.encode() + b"\r\n" + body)
        answer = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = answer.split("content-length:", 1)[1].split("\r\n", 1)[0]
        content = await self._reader.readexactly(int(length))
        if not answer.startswith("http/1.1 2"):
            sys.exit(f"{method} {path}: {answer.splitlines()[0]}: {content.decode()}")
        return json.loads(content)

    def close(self) -> None:
        """Disconnect."""
        self._writer.close()


async def post(connection: Connection) -> tuple[str, str]:
    """Start a rollout and return its id and lease."""
    rollout_id = os.urandom(8).hex()
    body = json.dumps({**BODY, "rollout_id": rollout_id}).encode()
    answer = await connection.ask("POST", "/rollout", body)
    return rollout_id, answer["polling_lease_token"]


async def read(connection: Connection, rollout_id: str, lease: str) -> int:
    """Poll until the rollout has ended; return how many polls that took."""
    polls = 0
    while True:
        polls += 1
        answer = await connection.ask("GET", f"/rollout/{rollout_id}/result", lease=lease)
        if answer["status"] in FINAL:
            break
    if answer["status"] != "success" or answer["sample"]["reward"] != 1.0:
        sys.exit(f"a rollout went wrong: {answer}")
    return polls


async def roll_out(connection: Connection) -> int:
    """Do one rollout and return how many exchanges it took."""
    rollout_id, lease = await post(connection)
    polls = await read(connection, rollout_id, lease)
    await connection.ask("GET", f"/rollout/{rollout_id}/status")
    return 2 + polls


async def many(port: int, concurrency: int, count: int) -> int:
    """Do `count` rollouts, `concurrency` at once; return how many exchanges they took."""
    waiting = iter(range(count))
    exchanges = 0

    async def worker() -> None:
        nonlocal exchanges
        connection = await Connection.to(port)
        for _ in waiting:
            made = await roll_out(connection)
            exchanges += made
        connection.close()

    await asyncio.gather(*(worker() for _ in range(concurrency)))
    return exchanges


# What is compared.


def run_once(server: Child, concurrency: int, count: int) -> tuple[float, float, float]:
    """Return CPU seconds, exchanges and elapsed seconds, each per rollout."""
    before, started = server.ask()["cpu"], time.perf_counter()
    exchanges = asyncio.run(many(server.port, concurrency, count))
    elapsed = time.perf_counter() - started
    return (server.ask()["cpu"] - before) / count, exchanges / count, elapsed / count


def compare(options: argparse.Namespace) -> None:
    """Print a row per concurrency: CPU per rollout, the floor's, and their ratio."""
    print(f"{'at once':>8}{'CPU ms':>9}{'floor ms':>10}{'ratio':>7}{'exchanges':>11}{'per s':>8}")
    with (
        tempfile.TemporaryDirectory() as root,
        child("--serve", "free", root=root) as ours,
        child("--serve", "floor") as floor,
    ):
        for concurrency in options.concurrency:
            for server in (ours, floor):
                run_once(server, concurrency, 4 * concurrency)
            rows: list[tuple[float, ...]] = []
            for _ in range(options.rounds):
                cost, exchanges, elapsed = run_once(ours, concurrency, options.rollouts)
                least, _, _ = run_once(floor, concurrency, options.rollouts)
                rows.append((1e3 * cost, 1e3 * least, cost / least, exchanges, 1 / elapsed))
            cost, least, ratio, exchanges, rate = map(statistics.median, zip(*rows, strict=True))
            figures = f"{cost:>9.2f}{least:>10.2f}{ratio:>7.2f}{exchanges:>11.2f}{rate:>8.0f}"
            print(f"{concurrency:>8}{figures}", flush=True)


async def fill_line(port: int, count: int) -> None:
    """Post `count` rollouts before the first poll, then read them all."""
    connections = [await Connection.to(port) for _ in range(LINE_LIMIT)]
    shares = [range(index, count, LINE_LIMIT) for index in range(LINE_LIMIT)]

    async def post_share(connection: Connection, share: range) -> list[tuple[str, str]]:
        return [await post(connection) for _ in share]

    async def read_share(connection: Connection, started: list[tuple[str, str]]) -> None:
        for rollout_id, lease in started:
            await read(connection, rollout_id, lease)

    pairs = zip(connections, shares, strict=True)
    posted = await asyncio.gather(*(post_share(*pair) for pair in pairs))
    for connection in connections:
        connection.close()
    connections = [await Connection.to(port) for _ in range(LINE_LIMIT)]
    await asyncio.gather(*map(read_share, connections, posted))
    for connection in connections:
        connection.close()


def queue_up(options: argparse.Namespace) -> None:
    """Print what a rollout costs, and the memory, for growing numbers of them."""
    print(f"{'queued':>8}{'CPU ms':>9}{'MB before':>11}{'MB at end':>11}{'MB after':>10}")
    with (
        tempfile.TemporaryDirectory() as root,
        child("--serve", "line", root=root) as server,
    ):
        asyncio.run(fill_line(server.port, 2 * LINE_LIMIT))
        time.sleep(LINE_RETENTION_SEC + 1)
        for count in options.queued:
            before = server.ask()
            asyncio.run(fill_line(server.port, count))
            end = server.ask()
            time.sleep(LINE_RETENTION_SEC + 1)
            cost = 1e3 * (end["cpu"] - before["cpu"]) / count
            memory = f"{before['mb']:>11.0f}{end['mb']:>11.0f}{server.ask()['mb']:>10.0f}"
            print(f"{count:>8}{cost:>9.2f}{memory}", flush=True)


def probe_health(port: int) -> None:
    """Ask for the health again and again until stdin closes; print when, and how long it took."""
    over = threading.Event()
    probes: list[tuple[float, float]] = []

    async def probe() -> None:
        connection = await Connection.to(port)
        while not over.is_set():
            started = time.monotonic()
            await connection.ask("GET", "/health")
            probes.append((started, time.monotonic() - started))
            await asyncio.sleep(PROBE_PAUSE_SEC)

    print(port, flush=True)
    prober = threading.Thread(target=lambda: asyncio.run(probe()))
    prober.start()
    sys.stdin.read()
    over.set()
    prober.join()
    print(json.dumps(probes), flush=True)


async def end_together(server: Child, count: int) -> tuple[float, list[float]]:
    """Let `count` rollouts with open polls end in one moment.

    Returns:
        The seconds until all results were read, and the latencies of the health route meanwhile.
    """
    connections = [await Connection.to(server.port) for _ in range(count)]
    started = [await post(connection) for connection in connections]
    pairs = zip(connections, started, strict=True)
    polls = [asyncio.create_task(read(connection, *rollout)) for connection, rollout in pairs]
    await asyncio.sleep(3.0)
    with child("--probe", str(server.port)) as prober:
        await asyncio.sleep(1.0)
        begun = time.monotonic()
        server.tell("release")
        await asyncio.gather(*polls)
        elapsed = time.monotonic() - begun
        assert prober.process.stdin is not None
        assert prober.process.stdout is not None
        prober.process.stdin.close()
        probes: list[tuple[float, float]] = json.loads(prober.process.stdout.readline())
    for connection in connections:
        connection.close()
    meanwhile = [
        latency
        for started, latency in probes
        if started + latency >= begun and started <= begun + elapsed
    ]
    return elapsed, meanwhile


def stampede(options: argparse.Namespace) -> None:
    """Print how long it takes until all results are read, and how the health route fares."""
    print(f"{'together':>9}{'seconds':>9}{'health p50 ms':>15}{'p99 ms':>8}{'max ms':>8}")
    with (
        tempfile.TemporaryDirectory() as root,
        child("--serve", "together", root=root) as server,
    ):
        elapsed, latencies = asyncio.run(end_together(server, options.together))
    cuts = [1e3 * cut for cut in statistics.quantiles(latencies, n=100)]
    figures = f"{cuts[49]:>15.1f}{cuts[98]:>8.1f}{1e3 * max(latencies):>8.1f}"
    print(f"{options.together:>9}{elapsed:>9.2f}{figures}")


def main() -> None:
    """Run a comparison, or the part of it that a child process is asked for."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rollouts", type=int, default=1000)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 64])
    parser.add_argument("--queued", type=int, nargs="+")
    parser.add_argument("--together", type=int)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--probe", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
    elif options.probe:
        probe_health(options.probe)
    elif options.queued:
        queue_up(options)
    elif options.together:
        stampede(options)
    else:
        compare(options)


if __name__ == "__main__":
    main()
