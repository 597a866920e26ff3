"""One unfinished rollout, and what a backend holds for the event loop that it runs on."""

import asyncio
import copy
import logging
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from osmosis_ai.rollout.backend._slots import Slots
from osmosis_ai.rollout.backend._supervision import Cut, Ending, Raised, Returned, Supervisor
from osmosis_ai.rollout.backend.base import report_status
from osmosis_ai.rollout.backend.errors import failure
from osmosis_ai.rollout.backend.turns import Turns
from osmosis_ai.rollout.backend.validation import unrewarded
from osmosis_ai.rollout.context import RolloutContext, get_rollout_context
from osmosis_ai.rollout.threads import off_loop
from osmosis_ai.rollout.types.copying import is_long
from osmosis_ai.rollout.types.execution import (
    ExecutionRequest,
    ExecutionResult,
    RolloutErrorCategory,
    RolloutErrorOrigin,
    RolloutStatus,
)
from osmosis_ai.rollout.types.sample import RolloutSample

_log = logging.getLogger(__name__)

# How long a source may take to tell what there is of the conversation after a failure.
_PARTIAL_SECONDS = 2.0
# From this on, a deadline's message says how much of it was spent in the queue.
_NOTABLE_QUEUE_SECONDS = 0.1


@dataclass(eq=False)
class LoopState:
    """What a backend holds for one event loop."""

    slots: Slots
    grader_slots: Slots
    supervisor: Supervisor = field(default_factory=Supervisor)
    # In lines of their own: who is graded does not wait again behind all who are not.
    workflow_turns: Turns = field(default_factory=Turns)
    grader_turns: Turns = field(default_factory=Turns)
    rollouts: "dict[str, Rollout]" = field(default_factory=dict[str, "Rollout"])


class Rollout:
    """One unfinished rollout; as a context manager, the time in which it has its id and a slot."""

    def __init__(self, request: ExecutionRequest, home: LoopState) -> None:
        self._loop = asyncio.get_running_loop()
        self._entered_at = self._loop.time()
        self.request = request
        self.home = home
        self.context = _derived_context(request.id)
        self.stop: asyncio.Future[None] = self._loop.create_future()
        self.left: asyncio.Future[None] = self._loop.create_future()
        self.status = RolloutStatus.QUEUED
        self.has_slot = False
        self.queued_seconds = 0.0
        self.artifacts_dir: Path | None = None

    def __enter__(self) -> Self:
        self.home.rollouts[self.request.id] = self
        return self

    def __exit__(self, *_: object) -> None:
        if self.has_slot:
            self.home.slots.release()
        del self.home.rollouts[self.request.id]
        self.left.set_result(None)

    async def wait_in_line(self) -> None:
        """Wait for a slot, which is given back at the exit; afterwards `has_slot` tells."""
        self.change_to(RolloutStatus.QUEUED)
        self.has_slot = await self.home.slots.acquire(
            stop=self.stop, seconds=self.request.agent_timeout_sec
        )
        self.queued_seconds = self.age()

    @cached_property
    def metadata(self) -> dict[str, Any] | None:
        """The private copy that workflow and grader share."""
        return copy.deepcopy(self.request.metadata)

    def age(self) -> float:
        return self._loop.time() - self._entered_at

    def change_to(self, status: RolloutStatus, workflow: ExecutionResult | None = None) -> None:
        self.status = status
        report_status(status, workflow)

    def cancel(self) -> str:
        if not self.stop.done():
            self.stop.set_result(None)
        queued = self.status is RolloutStatus.QUEUED
        return "cancelled_queued" if queued else "cancelled_running"

    async def run[T](
        self,
        code: Callable[[], Coroutine[Any, Any, T]],
        *,
        seconds: float | None = None,
        turns: Turns | None = None,
    ) -> Ending[T]:
        """Run `code` under supervision.

        Args:
            code: Makes the coroutine.
            seconds: The budget; None is unbounded.
            turns: What to go on by afterwards, where very many may end in the same moment.
        """
        return await self.home.supervisor.run(
            code, rollout_id=self.request.id, stop=self.stop, seconds=seconds, turns=turns
        )

    async def collect_sample(self) -> RolloutSample | None:
        """Ask the registered source; None when there is none."""
        with self.context as context:
            source = context.sample_source
            if source is None:
                return None
            return await self.with_telemetry(unrewarded(await source.get_sample()))

    async def with_telemetry(self, sample: RolloutSample) -> RolloutSample:
        """Return the sample with what the policy's calls told, in the copy for the archive."""
        calls, messages = self.context.policy_calls, sample.trajectory_messages
        if not calls or not messages:
            return sample
        try:
            if is_long(messages):
                annotated = await off_loop(calls.annotate, messages, self.request.prompt)
            else:
                annotated = calls.annotate(messages, self.request.prompt)
        except Exception as error:  # the messages' own values may raise anything
            _log.warning(
                "Rollout %s: what its calls told is not archived, its messages cannot be read: %s.",
                self.request.id,
                type(error).__name__,
            )
            return sample
        return sample.model_copy(update={"trajectory_messages": annotated})

    async def partial_sample(self) -> RolloutSample | None:
        """Return what a workflow that did not succeed left at its source, if it tells in time."""
        if self.context.sample_source is None:
            return None
        # The rollout's own stop does not count: a cancelled rollout is collected as well.
        never: asyncio.Future[None] = self._loop.create_future()
        ending = await self.home.supervisor.run(
            self.collect_sample, rollout_id=self.request.id, stop=never, seconds=_PARTIAL_SECONDS
        )
        if isinstance(ending, Returned):
            return ending.value
        _log.warning(
            "The partial conversation of rollout %s cannot be collected.",
            self.request.id,
            exc_info=ending.error if isinstance(ending, Raised) else None,
        )
        return None

    def ended_early(
        self,
        ending: Raised | Cut,
        phase: str,
        limit: float | None,
        sample: RolloutSample | None,
    ) -> ExecutionResult:
        """Return the result of a phase that did not return."""
        if self.stop.done():
            return ExecutionResult(
                status=RolloutStatus.CANCELLED,
                sample=sample,
                err_message="the rollout was cancelled",
                origin=RolloutErrorOrigin.CANCELLED,
                retryable=False,
            )
        if isinstance(ending, Raised):
            _log.warning(
                "The %s of rollout %s failed.", phase, self.request.id, exc_info=ending.error
            )
            return failure(ending.error, phase=RolloutErrorOrigin(phase), sample=sample)
        message = f"{phase} exceeded its {limit:.10g}s deadline"
        if phase == "workflow" and self.queued_seconds >= _NOTABLE_QUEUE_SECONDS:
            message += f", {self.queued_seconds:.1f}s of it in the queue"
        return ExecutionResult(
            status=RolloutStatus.FAILURE,
            sample=sample,
            err_message=message,
            err_category=RolloutErrorCategory.TIMEOUT,
            origin=RolloutErrorOrigin.DEADLINE,
            retryable=True,
        )


@contextmanager
def phase(context: RolloutContext) -> Generator[None]:
    """Activate the context of workflow or grader, and end its calls to the policy in the end.

    Whatever comes of the code that made them: some ignores its cancellation, some runs in threads.
    """
    try:
        with context:
            yield
    finally:
        context.end()


def _derived_context(rollout_id: str) -> RolloutContext:
    active = get_rollout_context()
    if active is None:
        return RolloutContext(rollout_id=rollout_id)
    return replace(active, rollout_id=rollout_id)
