"""Measure what archiving a rollout costs: time beside orjson, the event loop's delays, memory.

The floor is what orjson needs to dump and write the same document, taken in turns with the saving
in the same run. Every case is a process of its own, so that its memory is its own. The last table
is a whole server: from the end of grading to the file on the disk, and what `/health` takes
meanwhile. Compare the columns of one run, not runs. Linux only: others do not forget a peak.

    nox -s bench -- trajectory [--rounds N] [--cases 2000x200000 ...]
"""

import argparse
import asyncio
import ctypes
import http.client
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import orjson

CASES: Final = ["10x0", "1000x0", "2000x0", "50000x0", "2000x200000", "10x1000000", "1000x1000000"]
SERVED: Final = ["2000x0", "2000x200000"]
ID: Final = "r-1"
IDLE_SEC: Final = 2


def conversation(case: str) -> list[dict[str, Any]]:
    """Return questions and answers; the answers share the token ids, with log probabilities."""
    count, ids = map(int, case.split("x"))
    numbers = random.Random(case)
    messages: list[dict[str, Any]] = []
    for turn in range(count // 2):
        question = f"Question {turn}: " + "what does the tool say about it? " * 15
        answer: dict[str, Any] = {"role": "assistant", "content": f"Answer {turn}: " + "so. " * 120}
        if each := ids // (count // 2):
            answer["token_ids"] = [numbers.randrange(150_000) for _ in range(each)]
            answer["logprobs"] = [-numbers.random() for _ in range(each)]
        messages += [{"role": "user", "content": question}, answer]
    return messages


def dump_and_write(document: Any, path: Path) -> float:
    """Return the seconds that orjson's dump of a document, and writing it, take."""
    started = time.perf_counter()
    path.write_bytes(orjson.dumps(document))
    return time.perf_counter() - started


def forget_peak() -> None:
    """Give freed memory back, and have the process's peak count from now on."""
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")


def peak_bytes() -> int:
    """Return the most memory that the process has held since `forget_peak`."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


# Saving alone, in a process per case.


async def measure_saving(case: str, rounds: int) -> dict[str, float]:
    """Return milliseconds of saving and of its floor, the loop's longest delay, and memory."""
    from osmosis_ai.rollout import ExecutionResult, RolloutSample, RolloutStatus
    from osmosis_ai.rollout.trajectory import save_trajectory

    sample = RolloutSample(messages=[], trajectory_messages=conversation(case))
    result = ExecutionResult(status=RolloutStatus.SUCCESS, sample=sample)
    root = Path(os.environ["_OSMOSIS_ROLLOUT_ARTIFACT_ROOT"])
    path = root / ID / "trajectory.json"
    delays: list[float] = [0.0]

    async def tick() -> None:
        while True:
            started = time.perf_counter()
            await asyncio.sleep(0.001)
            delays.append(time.perf_counter() - started)

    small = ExecutionResult(status=RolloutStatus.SUCCESS, sample=RolloutSample(messages=[{}]))
    await save_trajectory(rollout_id="warm-up", result=small)
    forget_peak()
    before = peak_bytes()
    await save_trajectory(rollout_id=ID, result=result)
    memory = (peak_bytes() - before) / path.stat().st_size
    document = orjson.loads(path.read_bytes())
    saves: list[float] = []
    floors: list[float] = []
    work: list[float] = []
    for _ in range(rounds):
        started, used = time.perf_counter(), time.process_time()
        await save_trajectory(rollout_id=ID, result=result)
        saves.append(time.perf_counter() - started)
        saved = time.process_time()
        floors.append(dump_and_write(document, root / "floor.json"))
        work.append((saved - used) / (time.process_time() - saved))
        ticking = asyncio.create_task(tick())
        await save_trajectory(rollout_id=ID, result=result)
        ticking.cancel()
    return {
        "work": statistics.median(work),
        "mb": path.stat().st_size / 1e6,
        "save": 1e3 * statistics.median(saves),
        "floor": 1e3 * statistics.median(floors),
        "delay": 1e3 * max(delays),
        "memory": memory,
    }


# A whole server.


def serve(case: str) -> None:
    """Serve rollouts that return the conversation; for a line of stdin, tell the end of grading."""
    import socket

    import uvicorn

    from osmosis_ai.rollout import (
        AgentWorkflow,
        AgentWorkflowContext,
        Grader,
        GraderContext,
        LocalBackend,
    )
    from osmosis_ai.rollout.server import create_rollout_server

    messages = conversation(case)
    graded: list[int] = []

    class Returning(AgentWorkflow):
        async def run(self, ctx: AgentWorkflowContext) -> list[dict[str, Any]]:
            return messages

    class Noting(Grader):
        async def grade(self, ctx: GraderContext) -> None:
            ctx.set_reward(1.0)
            graded.append(time.time_ns())

    app = create_rollout_server(
        backend=LocalBackend(workflow=Returning, grader=Noting), configure_logging=False
    )
    # By its protocol's number, or else asyncio would leave Nagle's algorithm on.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False))

    def report() -> None:
        for _ in sys.stdin:
            print(graded[-1], flush=True)
        server.should_exit = True

    threading.Thread(target=report, daemon=True).start()
    print(listener.getsockname()[1], flush=True)
    server.run(sockets=[listener])


def pulse(port: int) -> None:
    """Ask for `/health` again and again; at a line of stdin, print when each began and ended."""
    # A process of its own: a client's parsing of the result would delay a thread.
    requests: list[tuple[int, int]] = []
    over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), over.set()), daemon=True).start()
    connection = http.client.HTTPConnection("127.0.0.1", port)
    print("ready", flush=True)
    while not over.is_set():
        started = time.time_ns()
        connection.request("GET", "/health")
        connection.getresponse().read()
        requests.append((started, time.time_ns()))
        time.sleep(0.001)
    print(json.dumps(requests), flush=True)


def during(requests: str, start: int, end: int) -> list[float]:
    """Return the milliseconds of the pulse's requests that began in a span of time."""
    return [(b - a) / 1e6 for a, b in json.loads(requests) if start <= a <= end]


async def measure_server(case: str, rounds: int) -> dict[str, float]:
    """Return milliseconds from the end of grading to the file, of its floor, and of `/health`."""
    from osmosis_ai.rollout.client import RolloutClient

    root = Path(os.environ["_OSMOSIS_ROLLOUT_ARTIFACT_ROOT"])
    spans: list[float] = []
    floors: list[float] = []
    healths: list[float] = []
    with child("--serve", case) as (line, ask):
        with child("--pulse", line.strip()) as (_, told):
            await asyncio.sleep(IDLE_SEC)
            idle = told()
        client = RolloutClient(url=f"http://127.0.0.1:{line.strip()}")
        for number in range(rounds + 1):
            name = f"{ID}-{number}"
            with child("--pulse", line.strip()) as (_, told):
                result = await client.run_rollout([], "http://127.0.0.1:9/v1", name, label="1")
                requests = told()
            if result.sample is None or result.sample.reward != 1.0:
                sys.exit(f"a rollout failed: {result.err_message}")
            graded = int(ask())
            path = root / name / "trajectory.json"
            document = orjson.loads(path.read_bytes())
            floor = dump_and_write(document, root / "floor.json")
            if number:  # the first one warms up
                written = path.stat().st_ctime_ns
                spans.append((written - graded) / 1e6)
                floors.append(1e3 * floor)
                healths += during(requests, graded, written)
        await client.aclose()
    return {
        "save": statistics.median(spans),
        "floor": statistics.median(floors),
        "idle": percentile(during(idle, 0, time.time_ns())),
        "p99": percentile(healths),
        "requests": len(healths),
    }


def percentile(values: list[float]) -> float:
    """Return the 99th percentile."""
    return sorted(values)[min(len(values) - 1, len(values) * 99 // 100)]


@contextmanager
def child(*arguments: str) -> Iterator[tuple[str, Callable[[], str]]]:
    """Start this file as a process; yield its first line, and what asks it for another."""
    command = [sys.executable, __file__, *arguments]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        source, sink = process.stdout, process.stdin
        assert source is not None
        assert sink is not None

        def ask() -> str:
            print(file=sink, flush=True)
            return source.readline()

        yield source.readline(), ask
        sink.close()


def main() -> None:
    """Print both tables, or do the part that a child process is asked for."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--cases", nargs="+", default=CASES, metavar="MESSAGESxIDS")
    parser.add_argument("--served", nargs="*", default=SERVED, metavar="MESSAGESxIDS")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--pulse", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return
    if options.pulse:
        pulse(options.pulse)
        return
    if options.case:
        print(json.dumps(asyncio.run(measure_saving(options.case, options.rounds))))
        return
    with tempfile.TemporaryDirectory() as root:
        os.environ["_OSMOSIS_ROLLOUT_ARTIFACT_ROOT"] = root
        print(f"{'messages x ids':<16}{'MB':>7}{'save ms':>9}{'orjson ms':>11}{'ratio':>7}", end="")
        print(f"{'CPU ratio':>11}{'loop delay ms':>15}{'memory/size':>13}")
        for case in options.cases:
            with child("--case", case, "--rounds", str(options.rounds)) as (line, _):
                row = json.loads(line)
            print(f"{case:<16}{row['mb']:>7.2f}{row['save']:>9.1f}{row['floor']:>11.1f}", end="")
            print(f"{row['save'] / row['floor']:>7.1f}{row['work']:>11.1f}", end="")
            print(f"{row['delay']:>15.1f}{row['memory']:>13.2f}")
        print(f"\n{'served':<16}{'graded to file':>16}{'orjson ms':>11}{'ratio':>7}", end="")
        print(f"{'/health p99 ms':>16}{'of':>6}{'when idle':>11}")
        for case in options.served:
            row = asyncio.run(measure_server(case, options.rounds))
            print(f"{case:<16}{row['save']:>16.1f}{row['floor']:>11.1f}", end="")
            print(
                f"{row['save'] / row['floor']:>7.1f}{row['p99']:>16.1f}{row['requests']:>6.0f}",
                end="",
            )
            print(f"{row['idle']:>11.1f}")


if __name__ == "__main__":
    main()
