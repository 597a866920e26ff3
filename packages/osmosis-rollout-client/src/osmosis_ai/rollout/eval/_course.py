"""The course of a run: from its jobs to its numbers."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from osmosis_ai.rollout.client import RolloutClient, RolloutProtocolError
from osmosis_ai.rollout.eval._entrypoint import Entrypoint
from osmosis_ai.rollout.eval._errors import EvalError
from osmosis_ai.rollout.eval._executing import Executor
from osmosis_ai.rollout.eval._files import OpenRun, RunFiles
from osmosis_ai.rollout.eval._journal import Entry, read_journal
from osmosis_ai.rollout.eval._metrics import Tally
from osmosis_ai.rollout.eval._options import EvalOptions
from osmosis_ai.rollout.eval._outcomes import Job, Outcome, OutcomeStatus
from osmosis_ai.rollout.eval._policy import Policy
from osmosis_ai.rollout.eval._running import ENDED_BY_THE_RUN, Stop, run_jobs
from osmosis_ai.rollout.eval._serving import health_problem, serving
from osmosis_ai.rollout.eval._settled import Settled
from osmosis_ai.rollout.eval._signals import interruptible

_DEFAULT_IN_FLIGHT = 16


class Listener:
    """What is told of a run while it goes on; by default, nothing happens."""

    def on_start(self, total: int, earlier: Sequence[Outcome]) -> None:
        """Hear how many outcomes there will be, and those that earlier starts brought."""

    def on_outcome(self, outcome: Outcome) -> None:
        """Hear of an outcome, which is in the journal by now."""

    def on_stop(self, stop: Stop) -> None:
        """Hear that the run will end early."""


@dataclass(frozen=True, slots=True)
class RunReport:
    """How an evaluation went.

    Attributes:
        tally: Its numbers.
        files: Where everything was written.
        rollouts: The folder with one folder per rollout, or None where a server keeps them that
            the run did not start.
        stopped: Why it ended early, or None.
    """

    tally: Tally
    files: RunFiles
    rollouts: Path | None
    stopped: Stop | None

    @property
    def succeeded(self) -> bool:
        """Whether every attempt at every row ended in success."""
        statuses = self.tally.everything.statuses
        return statuses[OutcomeStatus.SUCCESS] == statuses.total()

    def as_json(self) -> dict[str, Any]:
        """Return the report for machines."""
        return {
            "run": str(self.files.path),
            "rollouts": str(self.rollouts) if self.rollouts else None,
            "stopped": self.stopped.message if self.stopped else None,
            **self.tally.as_json(),
        }


@dataclass(slots=True, kw_only=True)
class Course:
    """A run on its way.

    Attributes:
        options: What is asked for.
        entrypoint: What to serve, or None where a server is there.
        policy: What answers the rollouts.
        models: The recorded model of each attempt, or None where the attempts are alike.
        run: The run's directory.
        jobs: Returns all that is to be run, also what has ended before.
        total: How many jobs that is.
        listener: Told of what happens.
        regraded: The directory of the run whose samples are graded anew, or None.
    """

    options: EvalOptions
    entrypoint: Entrypoint | None
    policy: Policy
    models: Sequence[str | None]
    run: OpenRun
    jobs: Callable[[], Iterator[Job]]
    total: int
    listener: Listener
    regraded: Path | None = None

    async def take(self) -> RunReport:
        """Run what has not ended yet, and return the numbers of everything.

        Raises:
            EvalError: the server cannot be used; nothing ran.
            RunError: outcomes could not be written, or their counts do not add up.
        """
        stopped: asyncio.Future[Stop] = asyncio.get_running_loop().create_future()
        total = self.total
        outcomes = self._earlier()
        self.listener.on_start(total, outcomes.in_order())

        async def record(entry: Entry) -> None:
            outcome = entry.outcome
            if outcome.origin != ENDED_BY_THE_RUN:
                await self.run.journal.append(entry)
            outcomes.add(outcome)
            self.listener.on_outcome(outcome)

        def stop(stop: Stop) -> None:
            if not stopped.done():
                stopped.set_result(stop)
                self.listener.on_stop(stop)

        with interruptible(lambda: stop(Stop(OutcomeStatus.CANCELLED, "interrupted"))):
            if len(outcomes) < total:
                async with self._server(stopped, stop) as client:
                    await run_jobs(
                        (job for job in self.jobs() if job.place not in outcomes),
                        Executor(client, self.policy, self.options).execute,
                        record,
                        concurrency=min(await self._in_flight(client), total),
                        stopped=stopped,
                    )
        return self._report(outcomes, stopped.result() if stopped.done() else None)

    def _earlier(self) -> Settled:
        """Return the outcomes that earlier starts of the run brought."""
        entries = read_journal(self.run.files.journal) if self.run.resumed else ()
        earlier = (entry.outcome for entry in entries)
        return Settled(earlier, retry_failed=self.options.retry_failed)

    async def _in_flight(self, client: RolloutClient) -> int:
        if self.options.max_in_flight is not None:
            return self.options.max_in_flight
        # More would only wait in the server's own line, and that costs them their agent budget.
        try:
            concurrency = (await client.health()).get("concurrency")
        except RolloutProtocolError:
            concurrency = None  # what is wrong with the server, the rollouts will tell
        limit = None
        if isinstance(concurrency, dict):
            limit = cast("dict[str, Any]", concurrency).get("max_concurrent")
        return limit if isinstance(limit, int) and limit > 0 else _DEFAULT_IN_FLIGHT

    @asynccontextmanager
    async def _server(
        self, stopped: asyncio.Future[Stop], stop: Callable[[Stop], None]
    ) -> AsyncGenerator[RolloutClient]:
        """Connect to the server that is there, or to one that is started for the run."""
        options, files = self.options, self.run.files
        if self.entrypoint is None:
            async with RolloutClient(url=options.url or "", api_key=options.server_key) as client:
                try:
                    await client.health()
                except RolloutProtocolError as error:
                    raise EvalError(health_problem(error)) from None
                yield client
            return
        async with (
            serving(
                self.entrypoint,
                python=options.python or self.entrypoint.python(),
                env=options.env,
                artifact_root=files.rollouts.absolute(),
                log=files.server_log,
                regraded=self.regraded,
                server_key=options.server_key,
                stopped=stopped,
            ) as server,
            RolloutClient(url=server.url, api_key=options.server_key) as client,
        ):

            async def watch() -> None:
                how = await server.ended()
                stop(Stop(OutcomeStatus.FAILURE, how, server.last_lines()))

            watching = asyncio.create_task(watch())
            try:
                yield client
            finally:
                watching.cancel()
                with suppress(asyncio.CancelledError):
                    await watching

    def _report(self, outcomes: Settled, stopped: Stop | None) -> RunReport:
        files = self.run.files
        tally = Tally.of(outcomes.in_order(), self.models)
        tally.check(self.total)
        rollouts = files.rollouts.absolute() if self.entrypoint else None
        report = RunReport(tally, files, rollouts, stopped)
        files.write_results(outcomes.in_order(), report.as_json())
        return report
