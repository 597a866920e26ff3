"""An evaluation from its options to its numbers."""

import secrets
from collections.abc import Iterator
from contextlib import AsyncExitStack

from osmosis_ai.rollout.eval._course import Course, Listener, RunReport
from osmosis_ai.rollout.eval._entrypoint import Entrypoint
from osmosis_ai.rollout.eval._files import OpenRun, RunFiles
from osmosis_ai.rollout.eval._manifest import manifest_of
from osmosis_ai.rollout.eval._options import EvalOptions
from osmosis_ai.rollout.eval._outcomes import Job, jobs_of
from osmosis_ai.rollout.eval._policies import attempts_of, policy_of, started
from osmosis_ai.rollout.eval._selection import selected_rows


async def evaluate(options: EvalOptions, listener: Listener | None = None) -> RunReport:
    """Run rows of a dataset on a rollout server, and write what came of it.

    The selected rows are checked before anything runs. A run whose directory is there already is
    resumed: what has ended by itself stays as it is. Ctrl-C and SIGTERM cancel the running
    rollouts and skip the others; so does the end of a server that the run has started, as failures.

    Raises:
        EvalError: bad input; nothing ran.
        RunError: outcomes could not be written, or their counts do not add up.
    """
    entrypoint = Entrypoint.parse(options.entrypoint) if options.entrypoint else None
    rows = sum(1 for _ in selected_rows(options.dataset, options.selection, options.limit))
    async with AsyncExitStack() as stack:
        policy = await stack.enter_async_context(started(policy_of(options)))
        attempts = attempts_of(policy, options.attempts)
        manifest = manifest_of(options, entrypoint, policy, attempts, rows)
        run = stack.enter_context(OpenRun(RunFiles(options.output), manifest, fresh=options.fresh))

        def jobs() -> Iterator[Job]:
            chosen = selected_rows(options.dataset, options.selection, options.limit)
            return jobs_of(chosen, attempts, run_id=secrets.token_hex(4))

        course = Course(
            options=options,
            entrypoint=entrypoint,
            policy=policy,
            models=[attempt.model for attempt in attempts],
            run=run,
            jobs=jobs,
            total=rows * len(attempts),
            listener=listener or Listener(),
        )
        return await course.take()
