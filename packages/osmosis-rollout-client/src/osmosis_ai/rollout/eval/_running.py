"""Running jobs: a bounded number at a time, each to exactly one outcome, none stopping another."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any

from osmosis_ai.rollout.eval._journal import Entry
from osmosis_ai.rollout.eval._outcomes import Job, Outcome, OutcomeStatus
from osmosis_ai.rollout.types import RolloutErrorOrigin

type Execute = Callable[[Job], Coroutine[Any, Any, Entry]]
type Record = Callable[[Entry], Coroutine[Any, Any, None]]

ENDED_BY_THE_RUN = "run"
"""The origin of outcomes that say nothing of the job: the run ended before it did."""


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
            await record(await _settle(job, execute, stopped))

    try:
        async with asyncio.TaskGroup() as workers:
            for _ in range(concurrency):
                workers.create_task(work())
    except ExceptionGroup as group:
        # Jobs do not fail workers, so this is `record` or `jobs`: the run cannot go on.
        raise group.exceptions[0] from None


async def _settle(job: Job, execute: Execute, stopped: asyncio.Future[Stop]) -> Entry:
    if stopped.done():
        reason = f"not started: {stopped.result().message}"
        return _unfinished(job, OutcomeStatus.SKIPPED, reason)
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
        return _unfinished(job, stopped.result().status, stopped.result().message)
    except Exception as error:  # the boundary of one job: its failure stops no other
        reason = f"{type(error).__name__}: {error}"
        outcome = Outcome.of(
            job,
            OutcomeStatus.FAILURE,
            err_message=reason,
            origin=RolloutErrorOrigin.INFRASTRUCTURE,
        )
        return Entry.of(outcome, job.row)


def _unfinished(job: Job, status: OutcomeStatus, reason: str) -> Entry:
    # That the server ended is what became of the rollouts on it; an interrupt is nothing of theirs.
    lost = status is OutcomeStatus.FAILURE
    origin = RolloutErrorOrigin.INFRASTRUCTURE if lost else ENDED_BY_THE_RUN
    return Entry.of(Outcome.of(job, status, err_message=reason, origin=origin), job.row)
