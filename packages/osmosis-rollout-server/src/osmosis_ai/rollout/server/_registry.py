"""The registry: every rollout that the server knows, and where it stands."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from osmosis_ai.rollout.server._archive import Record
from osmosis_ai.rollout.server._later import Later
from osmosis_ai.rollout.server._lease import Lease
from osmosis_ai.rollout.server._pace import Pace
from osmosis_ai.rollout.server._wire import FinalView, PhaseView, final_view
from osmosis_ai.rollout.types import ExecutionOutcome, ExecutionResult, RolloutStatus

_PROGRESS = {RolloutStatus.QUEUED: 0, RolloutStatus.RUNNING: 1, RolloutStatus.GRADING: 2}

_log = logging.getLogger(__name__)

type Watcher = Callable[[RolloutStatus], None]
"""Called with a rollout's status after each change; a delivery is a watcher."""


@dataclass(frozen=True, slots=True)
class Acceptance:
    """The answer to an accepted POST, and what a repeat must show to get it again.

    Attributes:
        answer: Body of the 202.
        key: The request's `Idempotency-Key`, if it had one.
        digest: Digest of the request's body, if it had a key.
    """

    answer: bytes
    key: str | None = None
    digest: bytes = b""


@dataclass(eq=False, slots=True)
class Rollout:
    """One rollout's state. It only moves forward, and a final status never changes.

    Attributes:
        id: The rollout's id.
        lease: The claim of the client that polls for the result.
        acceptance: How the request was answered.
        watchers: Who is told of changes.
        status: Where the rollout stands.
        settled: Whether its ending is decided, though perhaps not published yet.
        final: What is sent of it, once it has ended.
        ending: How it was ended from outside, if it was.
        workflow: The workflow's result, as reported when grading began.
        record: What archives it, as long as there may be news of it.
        delivered: Done when no callback is due any more; None if none ever is.
        task: What executes it; until that is done the id stays taken.
    """

    id: str
    lease: Lease
    acceptance: Acceptance
    watchers: list[Watcher]
    record: Record | None = field(default=None, repr=False)
    status: RolloutStatus = RolloutStatus.QUEUED
    settled: bool = False
    final: FinalView | None = None
    ending: ExecutionResult | None = None
    workflow: ExecutionResult | None = None
    delivered: asyncio.Future[None] | None = field(default=None, repr=False)
    task: asyncio.Task[None] | None = field(default=None, repr=False)

    def advance(self, status: RolloutStatus, workflow: ExecutionResult | None = None) -> None:
        """Take note of progress; what goes backwards or comes too late is dropped."""
        if self.settled:
            _log.debug("Rollout %s: dropped a late report of %s.", self.id, status)
            return
        is_news = self.workflow is None and workflow is not None
        self.workflow = self.workflow or workflow
        if _PROGRESS.get(status, 0) > _PROGRESS[self.status]:
            self._change(status)
        elif is_news:
            self._change(self.status)

    def end(self, ending: ExecutionResult) -> None:
        """End the rollout from outside, whatever its work comes to."""
        self.settled = True
        self.ending = ending
        self.publish(final_view(self.id, ExecutionOutcome(workflow=ending)))

    def publish(self, final: FinalView) -> None:
        """Make the ending known; the first one counts."""
        if self.final is None:
            self.final = final
            self._log_ending(final.ending)
            self._change(final.ending.status)

    def _change(self, status: RolloutStatus) -> None:
        self.status = status
        for watcher in self.watchers:
            watcher(status)

    def _log_ending(self, ending: PhaseView) -> None:
        if ending.status is not RolloutStatus.SUCCESS:
            _log.warning(
                "Rollout %s: %s (category %s, origin %s, retryable %s).",
                self.id,
                ending.status,
                ending.err_category,
                ending.origin,
                ending.retryable,
            )


class Registry:
    """The rollouts by id: those that run, and those whose result is still retained.

    The retention begins when a rollout has ended and its callbacks have been delivered or given
    up; an id stays taken until it is over and the task is done.
    """

    def __init__(self, retention_sec: float) -> None:
        self._retention = Later(retention_sec)
        self._rollouts: dict[str, Rollout] = {}
        self._by_key: dict[str, Rollout] = {}
        self._unfinished: dict[str, Rollout] = {}
        self.pace = Pace()

    def get(self, rollout_id: str) -> Rollout | None:
        """Return the rollout with this id, or None when it is not known (any more)."""
        return self._rollouts.get(rollout_id)

    def accepted_with(self, key: str) -> Rollout | None:
        """Return the rollout whose request had this `Idempotency-Key`."""
        return self._by_key.get(key)

    def unfinished(self) -> list[Rollout]:
        """Return the rollouts that have not ended, oldest first."""
        return list(self._unfinished.values())

    @property
    def active(self) -> int:
        """How many rollouts have not ended."""
        return len(self._unfinished)

    def tasks(self) -> set[asyncio.Task[None]]:
        """Return the tasks that still execute something, for rollouts that have ended too."""
        tasks = (rollout.task for rollout in self._rollouts.values())
        return {task for task in tasks if task is not None and not task.done()}

    def add(self, rollout: Rollout) -> None:
        """Take a rollout in; its id must not be known."""
        if not self._unfinished:
            self.pace.work_began()
        self._rollouts[rollout.id] = self._unfinished[rollout.id] = rollout
        if rollout.acceptance.key is not None:
            self._by_key[rollout.acceptance.key] = rollout
        rollout.watchers.append(lambda status: self._finish(rollout) if status.is_final else None)

    def _finish(self, rollout: Rollout) -> None:
        del self._unfinished[rollout.id]
        self.pace.rollout_ended()
        if rollout.delivered is None:
            self._retain(rollout)
        else:
            rollout.delivered.add_done_callback(lambda _: self._retain(rollout))

    def _retain(self, rollout: Rollout) -> None:
        rollout.record = None
        rollout.watchers = []
        self._retention.call(self._forget, rollout)

    def _forget(self, rollout: Rollout) -> None:
        if rollout.task is not None and not rollout.task.done():
            rollout.task.add_done_callback(lambda _: self._forget(rollout))
            return
        del self._rollouts[rollout.id]
        if rollout.acceptance.key is not None:
            del self._by_key[rollout.acceptance.key]
