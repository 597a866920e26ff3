"""An evaluation from its options to its numbers."""

import asyncio
import secrets
import signal
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from osmosis_ai.rollout.client import RolloutClient, RolloutProtocolError
from osmosis_ai.rollout.eval._dataset import read_dataset
from osmosis_ai.rollout.eval._errors import EvalError
from osmosis_ai.rollout.eval._executing import Executor
from osmosis_ai.rollout.eval._files import RunFiles
from osmosis_ai.rollout.eval._metrics import Tally
from osmosis_ai.rollout.eval._options import EvalOptions
from osmosis_ai.rollout.eval._outcomes import Outcome, OutcomeStatus, jobs_of
from osmosis_ai.rollout.eval._policies import attempts_of, policy_of, started
from osmosis_ai.rollout.eval._running import Stop, run_jobs
from osmosis_ai.rollout.eval._serving import Entrypoint, serving

type Listener = Callable[[Outcome, int], None]
"""Called with each outcome as it comes, and with how many there will be."""


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


async def evaluate(options: EvalOptions, on_outcome: Listener) -> RunReport:
    """Run every row of a dataset on a rollout server, and write what came of it.

    The whole dataset is checked before anything runs. Ctrl-C and SIGTERM cancel the running
    rollouts and skip the others; so does the end of a server that the run has started, as failures.

    Raises:
        EvalError: bad input; nothing ran.
        RunError: outcomes could not be written, or their counts do not add up.
    """
    entrypoint = Entrypoint.parse(options.entrypoint) if options.entrypoint else None
    rows = sum(1 for _ in read_dataset(options.dataset))
    async with AsyncExitStack() as stack:
        policy = await stack.enter_async_context(started(policy_of(options)))
        attempts = attempts_of(policy, options.attempts)
        files = stack.enter_context(RunFiles(options.output))
        tally, total = Tally(attempts), rows * len(attempts)

        def record(outcome: Outcome) -> None:
            files.add(outcome)
            tally.add(outcome)
            on_outcome(outcome, total)

        stopped: asyncio.Future[Stop] = asyncio.get_running_loop().create_future()
        jobs = jobs_of(read_dataset(options.dataset), attempts, run_id=secrets.token_hex(4))
        with _stopped_by_signals(stopped):
            async with _server(options, entrypoint, files, stopped) as client:
                executor = Executor(client, policy, options)
                await run_jobs(
                    jobs,
                    executor.execute,
                    record,
                    concurrency=min(options.concurrency, total),
                    stopped=stopped,
                )
        tally.check(total)
        report = RunReport(
            tally,
            files,
            files.rollouts.resolve() if entrypoint else None,
            stopped.result() if stopped.done() else None,
        )
        files.write_metrics(_metrics(options, report, rows))
        return report


def _metrics(options: EvalOptions, report: RunReport, rows: int) -> dict[str, object]:
    return {
        "dataset": str(options.dataset),
        "rows": rows,
        "attempts": len(report.tally.attempts),
        "pass_threshold": options.pass_threshold,
        "rollouts": str(report.rollouts) if report.rollouts else None,
        "stopped": report.stopped.message if report.stopped else None,
        **report.tally.as_json(),
    }


@asynccontextmanager
async def _server(
    options: EvalOptions,
    entrypoint: Entrypoint | None,
    files: RunFiles,
    stopped: asyncio.Future[Stop],
) -> AsyncGenerator[RolloutClient]:
    """Connect to the server that is there, or to one that is started for the run."""
    if entrypoint is None:
        async with RolloutClient(url=options.url or "", api_key=options.server_key) as client:
            try:
                await client.health()
            except RolloutProtocolError as error:
                raise EvalError(str(error)) from None
            yield client
        return
    async with (
        serving(
            entrypoint,
            artifact_root=files.rollouts.resolve(),
            log=files.server_log,
            server_key=options.server_key,
            stopped=stopped,
        ) as server,
        RolloutClient(url=server.url, api_key=options.server_key) as client,
    ):

        async def watch() -> None:
            how = await server.ended()
            _stop(stopped, Stop(OutcomeStatus.FAILURE, how, server.last_lines()))

        watching = asyncio.create_task(watch())
        try:
            yield client
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching


def _stop(stopped: asyncio.Future[Stop], stop: Stop) -> None:
    if not stopped.done():
        stopped.set_result(stop)


@contextmanager
def _stopped_by_signals(stopped: asyncio.Future[Stop]) -> Generator[None]:
    loop = asyncio.get_running_loop()
    signals = (signal.SIGINT, signal.SIGTERM)

    def on_signal() -> None:
        # A second signal finds the defaults, and ends the process at once.
        restore()
        _stop(stopped, Stop(OutcomeStatus.CANCELLED, "interrupted"))

    def restore() -> None:
        for number in signals:
            loop.remove_signal_handler(number)

    if threading.current_thread() is threading.main_thread():
        for number in signals:
            loop.add_signal_handler(number, on_signal)
    try:
        yield
    finally:
        restore()
