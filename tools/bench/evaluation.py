"""Measure what an evaluation adds to the bare client, when both drive the same server.

The server's rollouts end at once and ask no policy, so that all the time is spent on its routes and
on the driver. The floor runs each row with `RolloutClient` and forgets it; an evaluation reads a
dataset, syncs every result to the disk, and ends with its numbers. Each run is a process of its
own, they take turns, and what counts begins after its imports. Compare the rows of one run, not
runs.

    nox -s bench -- evaluation [--rounds N] [--rows 1000 4000] [--concurrency N]
"""

import argparse
import asyncio
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rollout_price import child

ROW: Final = {"user_prompt": "What is 2 + 2?", "ground_truth": "4"}
# Nobody listens there, and no workflow asks.
NOWHERE: Final = "http://127.0.0.1:9/v1"


# The drivers' processes.


async def floor(url: str, folder: Path, rows: int, concurrency: int) -> None:
    """Run every row with the client alone."""
    from osmosis_ai.rollout.client import RolloutClient

    waiting = iter(range(rows))
    messages = [{"role": "user", "content": ROW["user_prompt"]}]

    async with RolloutClient(url=url) as client:

        async def work() -> None:
            for row in waiting:
                name = f"{folder.name}-{row}"
                result = await client.run_rollout(
                    messages, NOWHERE, name, label=ROW["ground_truth"]
                )
                if result.sample is None or result.sample.reward != 1.0:
                    sys.exit(f"a rollout went wrong: {result}")

        async with asyncio.TaskGroup() as workers:
            for _ in range(concurrency):
                workers.create_task(work())


async def evaluation(url: str, folder: Path, rows: int, concurrency: int) -> None:
    """Evaluate a dataset of so many rows."""
    from osmosis_ai.rollout.eval import EvalOptions, evaluate

    dataset = folder / "data.jsonl"
    dataset.write_text(f"{json.dumps(ROW)}\n" * rows, encoding="utf-8")
    options = EvalOptions(
        dataset=dataset,
        output=folder / "run",
        url=url,
        chat_url=NOWHERE,
        max_in_flight=concurrency,
    )
    report = await evaluate(options)
    if report.tally.everything.passed != rows:
        sys.exit(f"rollouts went wrong: {report.as_json()}")


DRIVERS: Final[dict[str, Callable[[str, Path, int, int], Awaitable[None]]]] = {
    "floor": floor,
    "evaluation": evaluation,
}


@dataclass(frozen=True)
class Cost:
    """What a run took: seconds, seconds of CPU, and the process's peak of resident MB."""

    elapsed: float
    cpu: float
    mb: float


def cpu_so_far() -> float:
    """Return the process's CPU seconds."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def drive(kind: str, url: str, rows: int, concurrency: int) -> Cost:
    """Run a driver in this process, after a few rows that import everything."""
    driver = DRIVERS[kind]

    async def run(count: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            await driver(url, Path(folder), count, concurrency)

    asyncio.run(run(2 * concurrency))
    began, before = time.perf_counter(), cpu_so_far()
    asyncio.run(run(rows))
    elapsed, cpu = time.perf_counter() - began, cpu_so_far() - before
    # macOS counts in bytes, Linux in KiB.
    unit = 1e6 if sys.platform == "darwin" else 1e6 / 2**10
    return Cost(elapsed, cpu, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit)


# What is compared.


def run_once(kind: str, url: str, rows: int, concurrency: int) -> Cost:
    """Run a driver in a process of its own."""
    arguments = [f"--drive={kind}", f"--url={url}", f"--rows={rows}"]
    line = [sys.executable, __file__, *arguments, f"--concurrency={concurrency}"]
    done = subprocess.run(line, stdout=subprocess.PIPE, text=True, check=True)
    return Cost(**json.loads(done.stdout))


def median(costs: list[Cost]) -> Cost:
    """Return the median of each figure."""
    return Cost(
        statistics.median(cost.elapsed for cost in costs),
        statistics.median(cost.cpu for cost in costs),
        statistics.median(cost.mb for cost in costs),
    )


def compare(options: argparse.Namespace) -> None:
    """Print a row per driver and number of rows, and how they compare."""
    print(f"{'rows':>7}  {'driver':12}{'rows/s':>8}{'CPU ms/row':>12}{'peak MB':>9}")
    with tempfile.TemporaryDirectory() as root, child("--serve", "free", root=root) as server:
        url = f"http://127.0.0.1:{server.port}"
        for rows in options.rows:
            turns = [
                {kind: run_once(kind, url, rows, options.concurrency) for kind in DRIVERS}
                for _ in range(options.rounds)
            ]
            for kind in DRIVERS:
                cost = median([turn[kind] for turn in turns])
                rate, cpu = rows / cost.elapsed, 1e3 * cost.cpu / rows
                print(f"{rows:>7}  {kind:12}{rate:>8.0f}{cpu:>12.2f}{cost.mb:>9.0f}", flush=True)
            pairs = [(turn["evaluation"], turn["floor"]) for turn in turns]
            time_ratio = statistics.median(ours.elapsed / least.elapsed for ours, least in pairs)
            cpu_ratio = statistics.median(ours.cpu / least.cpu for ours, least in pairs)
            print(f"{'':9}evaluation takes {time_ratio:.2f} x the time, {cpu_ratio:.2f} x the CPU")


def main() -> None:
    """Run the comparison, or the part of it that a child process is asked for."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, nargs="+", default=[1000])
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--drive", choices=DRIVERS, help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.drive:
        cost = drive(options.drive, options.url, options.rows[0], options.concurrency)
        print(json.dumps(cost.__dict__))
    else:
        compare(options)


if __name__ == "__main__":
    main()
