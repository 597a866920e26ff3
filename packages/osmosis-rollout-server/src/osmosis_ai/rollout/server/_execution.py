"""Execution: each rollout in a task of its own, from the backend's outcome to the ending."""

import asyncio
import logging
import threading
import traceback
from collections.abc import Coroutine, Iterable
from contextvars import ContextVar
from functools import partial
from typing import Any

from osmosis_ai.rollout.backend import ExecutionBackend, StatusReporter, reporting_to
from osmosis_ai.rollout.backend.errors import error_message
from osmosis_ai.rollout.backend.validation import why_not_graded
from osmosis_ai.rollout.context import RolloutContext
from osmosis_ai.rollout.server._archive import Archive, Record, archived_result
from osmosis_ai.rollout.server._later import Later
from osmosis_ai.rollout.server._registry import Rollout
from osmosis_ai.rollout.server._watch import current_rollout
from osmosis_ai.rollout.server._wire import FinalView, final_view
from osmosis_ai.rollout.threads import off_loop
from osmosis_ai.rollout.types import (
    ExecutionOutcome,
    ExecutionRequest,
    ExecutionResult,
    RolloutErrorCategory,
    RolloutErrorOrigin,
    RolloutInitRequest,
    RolloutSample,
    RolloutStatus,
)
from osmosis_ai.rollout.types.copying import is_long

# A result is published once it is archived, so that whoever reads it finds the files; a disk that
# takes longer than this does not hold it up any further.
ARCHIVE_PATIENCE_SEC = 5.0

_CANCELLED = ExecutionResult(
    status=RolloutStatus.CANCELLED,
    err_message="the rollout's task was cancelled",
    origin=RolloutErrorOrigin.CANCELLED,
    retryable=True,
)

_log = logging.getLogger(__name__)

_executor: ContextVar["Executor | None"] = ContextVar("osmosis_executor", default=None)


class Executor:
    """Executes rollouts on a backend and stops them."""

    def __init__(self, backend: ExecutionBackend, archive: Archive) -> None:
        self._backend = backend
        self._archive = archive
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._patience = Later(ARCHIVE_PATIENCE_SEC)

    def start(self, rollout: Rollout, request: RolloutInitRequest) -> None:
        """Execute a rollout in a task of its own; when this returns, the backend knows of it."""
        # Begun at once: otherwise the backend would be asked for capacity again before it counted
        # this rollout.
        rollout.task = asyncio.Task(
            self._run(rollout, request), loop=self._loop, name=rollout.id, eager_start=True
        )
        rollout.task.add_done_callback(partial(_close, rollout))

    def refresh(self, rollout: Rollout) -> None:
        """Ask the backend where an unfinished rollout stands: not every backend reports."""
        if rollout.settled:
            return
        try:
            known = self._backend.rollout_status(rollout.id)
            if known is not None:
                rollout.advance(RolloutStatus(known["status"]))
        except Exception as error:
            # A boundary: whatever a user's backend does here, the status is told.
            _log.warning("The backend cannot tell a rollout's status: %s.", type(error).__name__)

    def stop(self, rollouts: Iterable[Rollout], ending: ExecutionResult) -> dict[str, str]:
        """End rollouts with `ending`, and stop the work on them.

        Returns:
            By id, `cancelled_queued` or `cancelled_running`; one that has ended is left out.
        """
        live = {rollout.id: rollout for rollout in rollouts if not rollout.settled}
        dispositions = self._cancel_in_backend(list(live))
        for rollout in live.values():
            if rollout.id not in dispositions:
                queued = rollout.status is RolloutStatus.QUEUED
                dispositions[rollout.id] = "cancelled_queued" if queued else "cancelled_running"
                if rollout.task is not None:
                    rollout.task.cancel()
            rollout.end(ending)
        return dispositions

    def _cancel_in_backend(self, ids: list[str]) -> dict[str, str]:
        if not ids:
            return {}
        try:
            told = self._backend.cancel_rollouts(ids=ids)
        except Exception as error:
            # A boundary: whatever a user's backend does here, the tasks are cancelled.
            _log.warning("The backend cannot cancel rollouts: %s.", type(error).__name__)
            return {}
        return {id_: how for id_, how in told.items() if id_ in ids and how != "not_found"}

    def leftovers(self) -> set[asyncio.Task[Any]]:
        """Return the unfinished tasks of rollouts, those included that user code left behind."""
        own = asyncio.current_task()
        tasks = (task for task in asyncio.all_tasks() if task is not own)
        return {task for task in tasks if task.get_context().get(_executor) is self}

    async def _run(self, rollout: Rollout, request: RolloutInitRequest) -> None:
        _executor.set(self)
        current_rollout.set(rollout.id)
        record = self._archive.open(rollout.id, request)
        rollout.record = None if rollout.settled else record
        outcome = await self._execute(rollout, request)
        saving = _save(record, rollout, outcome)
        if rollout.settled:
            if outcome.result.status is not RolloutStatus.CANCELLED:
                _log.warning("Rollout %s: dropped a result that came after its end.", rollout.id)
            await saving
        else:
            rollout.settled = True
            await self._publish_saved(rollout, outcome, saving)

    async def _execute(self, rollout: Rollout, request: RolloutInitRequest) -> ExecutionOutcome:
        key = request.llm_api_key or request.controller_api_key or None
        context = RolloutContext(request.chat_completions_url, key, rollout.id)
        try:
            with context, reporting_to(self._reporter(rollout)):
                asked = _execution_request(rollout.id, request)
                return _check_outcome(asked, await self._backend.execute(asked))
        except asyncio.CancelledError as error:
            ending = _CANCELLED if _take_cancellation() else _crash(rollout.id, error)
        except GeneratorExit:
            raise
        except BaseException as error:
            # The boundary between a user's backend and the server: a sys.exit() in there ends
            # this rollout, not the process.
            ending = _crash(rollout.id, error)
        return ExecutionOutcome(workflow=ending)

    async def _publish_saved(
        self, rollout: Rollout, outcome: ExecutionOutcome, saving: Coroutine[Any, Any, None]
    ) -> None:
        impatience = self._patience.call(_publish_unsaved, rollout, outcome)
        try:
            await saving
        finally:
            if rollout.final is None:
                # What makes a long result ready shares its threads with files, which may hang.
                rollout.publish(await _view(rollout.id, outcome))
            impatience.cancel()

    def _reporter(self, rollout: Rollout) -> StatusReporter:
        def report(status: RolloutStatus, workflow: ExecutionResult | None) -> None:
            if threading.get_ident() == self._thread:
                rollout.advance(status, workflow)
            else:
                self._loop.call_soon_threadsafe(rollout.advance, status, workflow)

        return report


def _publish_unsaved(rollout: Rollout, outcome: ExecutionOutcome) -> None:
    if rollout.final is None:
        # On the loop, however long the result is: the threads hang with the disk.
        rollout.publish(final_view(rollout.id, outcome))


async def _save(record: Record, rollout: Rollout, outcome: ExecutionOutcome) -> None:
    result = archived_result(rollout.workflow, outcome, rollout.ending)
    await record.save(result, outcome.grading_skipped)


def _execution_request(rollout_id: str, request: RolloutInitRequest) -> ExecutionRequest:
    # Who only wants to know of the workflow's end would never hear of a grading.
    unheard = request.completion_callback_url and not request.grader_callback_url
    return ExecutionRequest(
        id=rollout_id,
        prompt=request.initial_messages,
        label=request.label,
        metadata=request.metadata,
        agent_timeout_sec=request.agent_timeout_sec,
        grader_timeout_sec=request.grader_timeout_sec,
        grade=request.grade and not unheard,
    )


def _check_outcome(request: ExecutionRequest, outcome: object) -> ExecutionOutcome:
    if not isinstance(outcome, ExecutionOutcome):
        msg = f"the backend returned {type(outcome).__name__}, not an ExecutionOutcome"
        raise TypeError(msg)
    if not outcome.result.status.is_final:
        msg = f"the backend returned the status {outcome.result.status}, which is not final"
        raise ValueError(msg)
    if outcome.result is not outcome.workflow or outcome.result.status is not RolloutStatus.SUCCESS:
        return outcome
    # Not every backend says why.
    reason = outcome.grading_skipped or why_not_graded(request)
    return outcome.model_copy(update={"grading_skipped": reason})


def _take_cancellation() -> bool:
    """Tell whether the running task was cancelled from outside; it goes on as one that was not."""
    task = asyncio.current_task()
    if task is None or not task.cancelling():
        return False
    while task.uncancel():
        pass
    return True


def _crash(rollout_id: str, error: BaseException) -> ExecutionResult:
    # Where it happened, but not its text: that may quote what the request held.
    frames = "".join(traceback.format_tb(error.__traceback__))
    _log.error("Rollout %s: the backend raised %s.\n%s", rollout_id, type(error).__name__, frames)
    return ExecutionResult(
        status=RolloutStatus.FAILURE,
        err_message=error_message(error),
        err_category=RolloutErrorCategory.INTERNAL_ERROR,
        origin=RolloutErrorOrigin.INFRASTRUCTURE,
        retryable=True,
    )


def _close(rollout: Rollout, task: asyncio.Task[None]) -> None:
    error = None if task.cancelled() else task.exception()
    if error is not None:
        _log.error("Rollout %s: the server failed.", rollout.id, exc_info=error)
    if rollout.final is None:
        # Its client must not wait for ever, whatever went wrong.
        rollout.end(_CANCELLED if error is None else _crash(rollout.id, error))
    # Of what is over, only what can still be asked for is kept.
    rollout.task = rollout.workflow = None


async def _view(rollout_id: str, outcome: ExecutionOutcome) -> FinalView:
    if _is_long(outcome.result.sample):
        return await off_loop(final_view, rollout_id, outcome)
    return final_view(rollout_id, outcome)


def _is_long(sample: RolloutSample | None) -> bool:
    try:
        return sample is not None and is_long(sample.messages)
    except BaseException:  # foreign messages; the view keeps the reward from them
        return False
