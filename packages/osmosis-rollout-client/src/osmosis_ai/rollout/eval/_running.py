"""Running jobs: a bounded number at a time, each to exactly one outcome, none stopping another."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any

from osmosis_ai.rollout.eval._outcomes import Job, Outcome, OutcomeStatus

type Execute = Callable[[Job], Coroutine[Any, Any, Outcome]]
type Record = Callable[[Outcome], None]


@dataclass(frozen=True, slots=True)
class Stop:
    """Why a run ends early.

    Attributes:
        status: How the jobs end that are running.
        message: The reason, for people, in a few words.
        detail: What helps to find the cause, such as a log's last lines.
    """

    status: OutcomeStatus
    message: str
    detail: str = ""


async def run_jobs(
    jobs: Iterator[Job],
    execute: Execute,
    record: Record,
    *,
    concurrency: int,
    stopped: asyncio.Future[Stop],
) -> None:
    """Run all jobs and record how each ended.

    Once `stopped` has a result, running jobs are cancelled and the others are skipped.

    Args:
        jobs: What to run; it is read only as fast as jobs end.
        execute: Runs one job; what it raises is the failure of that job.
        record: Called with each outcome as it comes.
        concurrency: How many jobs run at a time.
        stopped: Tells when to stop.
    """

    async def work() -> None:
        for job in jobs:
            record(await _settle(job, execute, stopped))

    try:
        async with asyncio.TaskGroup() as workers:
            for _ in range(concurrency):
                workers.create_task(work())
    except ExceptionGroup as group:
        # Jobs do not fail workers, so this is `record` or `jobs`: the run cannot go on.
        raise group.exceptions[0] from None


async def _settle(job: Job, execute: Execute, stopped: asyncio.Future[Stop]) -> Outcome:
    if stopped.done():
        reason = f"not started: {stopped.result().message}"
        return Outcome.without_result(job, OutcomeStatus.SKIPPED, reason)
    running = asyncio.create_task(execute(job))
    either: set[asyncio.Future[Any]] = {running, stopped}
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    finally:
        running.cancel()
    try:
        return await running
    except asyncio.CancelledError:
        if not stopped.done() or not running.cancelled():
            raise
        return Outcome.without_result(job, stopped.result().status, stopped.result().message)
    except Exception as error:  # the boundary of one job: its failure stops no other
        reason = f"{type(error).__name__}: {error}"
        return Outcome.without_result(job, OutcomeStatus.FAILURE, reason)
