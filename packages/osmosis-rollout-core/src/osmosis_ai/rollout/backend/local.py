"""Rollouts in this process, on the running event loop."""

import asyncio
import copy
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, override
from weakref import WeakKeyDictionary

from osmosis_ai.rollout.agent_workflow import AgentWorkflow
from osmosis_ai.rollout.artifacts import artifact_root_from_env
from osmosis_ai.rollout.backend._provisioning import ArtifactDirs
from osmosis_ai.rollout.backend._references import resolve_class, resolve_instance
from osmosis_ai.rollout.backend._rollout import LoopState, Rollout, phase
from osmosis_ai.rollout.backend._slots import Slots
from osmosis_ai.rollout.backend._supervision import Cut, Ending, Returned
from osmosis_ai.rollout.backend.base import ExecutionBackend
from osmosis_ai.rollout.backend.errors import failure
from osmosis_ai.rollout.backend.validation import (
    check_graded,
    check_output,
    sample_from_output,
    unrewarded,
    why_not_graded,
)
from osmosis_ai.rollout.context import (
    AgentWorkflowContext,
    GraderContext,
)
from osmosis_ai.rollout.grader import Grader
from osmosis_ai.rollout.threads import off_loop
from osmosis_ai.rollout.types.config import AgentWorkflowConfig, GraderConfig
from osmosis_ai.rollout.types.copying import deep_copy, is_long
from osmosis_ai.rollout.types.execution import (
    ExecutionOutcome,
    ExecutionRequest,
    ExecutionResult,
    RolloutErrorOrigin,
    RolloutStatus,
)
from osmosis_ai.rollout.types.sample import RolloutSample

_log = logging.getLogger(__name__)

_SHUTDOWN_SECONDS = 5.0

type _WorkflowFactory = Callable[[AgentWorkflowConfig | None], AgentWorkflow[Any]]
type _GraderFactory = Callable[[GraderConfig | None], Grader]


class LocalBackend(ExecutionBackend):
    """Runs workflow and grader in this process, each rollout in tasks of its own.

    Rollouts beyond the workflow config's `max_concurrent` wait in line. Limits, ids and
    cancellation are kept per event loop, so that one backend can serve several loops.

    Python code cannot be interrupted between two awaits: a workflow that blocks holds up every
    other rollout of the loop (use `asyncio.to_thread`). It is still late by the clock.

    Args:
        workflow: The `AgentWorkflow` subclass, or a `"module:attr"` reference to it.
        workflow_config: Its config, or a reference; each rollout gets a deep copy.
        grader: The `Grader` subclass, or a reference; without one nothing is graded.
        grader_config: Its config, or a reference.
        max_queue_depth: How many rollouts may wait in line before `has_capacity` turns False;
            None is unbounded. It has no effect without `max_concurrent`.

    Raises:
        TypeError: an argument is not of the kind above.
        ValueError: a reference leads nowhere, `max_queue_depth` is negative, or there is a grader
            config without a grader.
    """

    def __init__(
        self,
        *,
        workflow: type[AgentWorkflow[Any]] | str,
        workflow_config: AgentWorkflowConfig | str | None = None,
        grader: type[Grader] | str | None = None,
        grader_config: GraderConfig | str | None = None,
        max_queue_depth: int | None = None,
    ) -> None:
        if grader is None and grader_config is not None:
            msg = "grader_config was given without a grader: nothing would be graded"
            raise ValueError(msg)
        if max_queue_depth is not None and max_queue_depth < 0:
            msg = f"max_queue_depth must be at least 0, or None for no bound; got {max_queue_depth}"
            raise ValueError(msg)
        self._workflow: _WorkflowFactory = resolve_class(workflow, AgentWorkflow, "workflow")
        self._workflow_config = resolve_instance(
            workflow_config, AgentWorkflowConfig, "workflow_config"
        )
        self._grader: _GraderFactory | None = (
            None if grader is None else resolve_class(grader, Grader, "grader")
        )
        self._grader_config = resolve_instance(grader_config, GraderConfig, "grader_config")
        self._max_queue_depth = max_queue_depth
        self._artifact_dirs = ArtifactDirs(artifact_root_from_env())
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopState] = WeakKeyDictionary()

    @property
    @override
    def artifact_root(self) -> Path:
        """The directory that holds one folder per rollout, as the environment named it first."""
        return self._artifact_dirs.root

    @override
    async def execute(self, request: ExecutionRequest) -> ExecutionOutcome:
        """Run the rollout to its end: wait for a slot, run the workflow, grade.

        The active `RolloutContext` names the policy's endpoint. Grading takes place when there is
        a grader, the request asks for it and has a label or metadata, and the workflow succeeded.
        `cancel_rollouts` ends the execution with an outcome, cancelling the calling task with
        `CancelledError`; either way the user's code is cancelled first.

        Raises:
            ValueError: a rollout of this id is unfinished, or its code still runs.
            asyncio.CancelledError: the calling task was cancelled.
        """
        with self._new_rollout(request) as rollout:
            await rollout.wait_in_line()
            workflow = await self._work(rollout)
            if workflow.status is not RolloutStatus.SUCCESS:
                return ExecutionOutcome(workflow=workflow)
            reason = why_not_graded(request)
            if self._grader is None or reason is not None:
                reason = reason or "the backend has no grader"
                return ExecutionOutcome(workflow=workflow, grading_skipped=reason)
            rollout.change_to(RolloutStatus.GRADING, workflow)
            grader = await self._grade(rollout, workflow.sample, self._grader)
            return ExecutionOutcome(workflow=workflow, grader=grader)

    async def run_workflow(self, request: ExecutionRequest) -> ExecutionResult:
        """Run the workflow alone, within the same limits as `execute`; nothing is archived.

        Raises:
            ValueError: a rollout of this id is unfinished, or its code still runs.
            asyncio.CancelledError: the calling task was cancelled.
        """
        with self._new_rollout(request) as rollout:
            await rollout.wait_in_line()
            return await self._work(rollout)

    async def run_grader(
        self, request: ExecutionRequest, result: ExecutionResult
    ) -> ExecutionResult:
        """Grade the sample of a workflow's result; nothing is archived.

        It is graded with or without label and metadata, but not if the workflow did not succeed:
        that is a failure. A reward that the sample has already does not count.

        Raises:
            ValueError: there is no grader; a rollout of this id is unfinished, or its code runs.
            asyncio.CancelledError: the calling task was cancelled.
        """
        if self._grader is None:
            msg = "this backend has no grader: give one to its constructor"
            raise ValueError(msg)
        sample = None if result.sample is None else unrewarded(result.sample)
        if result.status is not RolloutStatus.SUCCESS:
            msg = f"the workflow ended in {result.status}: there is nothing to grade"
            return failure(ValueError(msg), phase=RolloutErrorOrigin.GRADER, sample=sample)
        with self._new_rollout(request) as rollout:
            rollout.change_to(RolloutStatus.GRADING, result)
            rollout.artifacts_dir = await self._artifact_dirs.provide(request.id, fresh=False)
            return await self._grade(rollout, sample, self._grader)

    @override
    def has_capacity(self) -> bool:
        """Tell whether another rollout would run or find a place in line.

        A rollout counts from the first step of `execute` to its end.
        """
        here = self._here()
        if here.slots.limit is None or self._max_queue_depth is None:
            return True
        return len(here.rollouts) < here.slots.limit + self._max_queue_depth

    @override
    def rollout_status(self, rollout_id: str, /) -> dict[str, Any] | None:
        """Return `{"status": "queued" | "running" | "grading"}`, or None when it is not known."""
        rollout = self._here().rollouts.get(rollout_id)
        return None if rollout is None else {"status": rollout.status}

    @override
    def is_in_use(self, rollout_id: str, /) -> bool:
        """Tell whether a rollout of this id is unfinished, or its code still runs."""
        here = self._here()
        return rollout_id in here.rollouts or here.supervisor.straggles(rollout_id)

    @override
    def cancel_rollouts(
        self, ids: list[str] | None = None, prefix: str | None = None, all: bool = False
    ) -> dict[str, str]:
        """Stop unfinished rollouts: those named, those whose id starts with `prefix`, or all.

        Each of them ends with status `cancelled`, even when its code finishes in the same moment.

        Returns:
            By id: `cancelled_queued`, `cancelled_running` or `not_found`.
        """
        rollouts = self._here().rollouts
        chosen = [
            *(ids or []),
            *(key for key in rollouts if all or (prefix and key.startswith(prefix))),
        ]
        return {key: rollouts[key].cancel() if key in rollouts else "not_found" for key in chosen}

    @override
    def health(self) -> dict[str, Any]:
        """Return the status, the limit, and how many rollouts wait and run."""
        slots = self._here().slots
        concurrency = {
            "max_concurrent": slots.limit,
            "queued": slots.waiting,
            "running": slots.taken,
        }
        return {"status": "ok", "concurrency": concurrency}

    @override
    async def shutdown(self) -> None:
        """Cancel what is unfinished on this loop, wait a few seconds for it, and close the rest.

        It returns even if user code swallows its cancellation. The backend can be used again.
        """
        here = self._here()
        self.cancel_rollouts(all=True)
        if leaving := [rollout.left for rollout in here.rollouts.values()]:
            await asyncio.wait(leaving, timeout=_SHUTDOWN_SECONDS)
        await here.supervisor.close()

    def _here(self) -> LoopState:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return self._new_state()
        if loop not in self._loops:
            self._loops[loop] = self._new_state()
        return self._loops[loop]

    def _new_state(self) -> LoopState:
        return LoopState(
            slots=Slots(_max_concurrent(self._workflow_config)),
            grader_slots=Slots(_max_concurrent(self._grader_config)),
        )

    def _new_rollout(self, request: ExecutionRequest) -> Rollout:
        if self.is_in_use(request.id):
            msg = f"the rollout id {request.id} is in use: its execution has not ended"
            raise ValueError(msg)
        return Rollout(request, self._here())

    async def _work(self, rollout: Rollout) -> ExecutionResult:
        limit = rollout.request.agent_timeout_sec
        left = None if limit is None else limit - rollout.queued_seconds
        ending: Ending[Any] = Cut.EXPIRED
        if rollout.has_slot and (left is None or left > 0):
            rollout.change_to(RolloutStatus.RUNNING)
            # Supervised so that a file system that hangs does not hold up a cancellation.
            ending = await rollout.run(lambda: self._artifact_dirs.provide(rollout.request.id))
            if isinstance(ending, Returned):
                rollout.artifacts_dir = ending.value
                with phase(rollout.context):
                    ending = await self._make_sample(rollout, left)
        if isinstance(ending, Returned):
            return ExecutionResult(status=RolloutStatus.SUCCESS, sample=ending.value)
        partial = await rollout.partial_sample()
        return rollout.ended_early(ending, "workflow", limit, partial)

    async def _make_sample(self, rollout: Rollout, seconds: float | None) -> Ending[Any]:
        # In two steps, so that workflows which end in the same moment do not copy their
        # conversations all at once. What the first step took, the second one does not have.
        deadline = None if seconds is None else rollout.age() + seconds
        ending = await rollout.run(
            lambda: self._call_workflow(rollout),
            seconds=seconds,
            turns=rollout.home.workflow_turns,
        )
        if not isinstance(ending, Returned):
            return ending
        output, ended_at = ending.value
        left = None if deadline is None else deadline - ended_at
        return await rollout.run(lambda: _collect(rollout, output), seconds=left)

    async def _call_workflow(self, rollout: Rollout) -> tuple[object, float]:
        request = rollout.request
        config = copy.deepcopy(self._workflow_config)
        workflow = self._workflow(config)
        context = AgentWorkflowContext[Any](
            prompt=deep_copy(request.prompt),
            config=config,
            metadata=rollout.metadata,
            artifacts_dir=rollout.artifacts_dir,
        )
        return await workflow.run(context), rollout.age()

    async def _grade(
        self, rollout: Rollout, sample: RolloutSample | None, grader: _GraderFactory
    ) -> ExecutionResult:
        limit = rollout.request.grader_timeout_sec
        slots = rollout.home.grader_slots
        ending: Ending[RolloutSample] = Cut.STOPPED
        # The wait for a grader's slot is the operator's doing and costs the grader nothing.
        if await slots.acquire(stop=rollout.stop):
            try:
                # An agent that a grader builds must not meet the workflow's sample source.
                with phase(replace(rollout.context, sample_source=None)):
                    ending = await rollout.run(
                        lambda: self._call_grader(rollout, sample, grader),
                        seconds=limit,
                        turns=rollout.home.grader_turns,
                    )
            finally:
                slots.release()
        if isinstance(ending, Returned):
            return ExecutionResult(status=RolloutStatus.SUCCESS, sample=ending.value)
        return rollout.ended_early(ending, "grader", limit, sample)

    async def _call_grader(
        self, rollout: Rollout, sample: RolloutSample | None, grader: _GraderFactory
    ) -> RolloutSample:
        context = GraderContext(
            label=rollout.request.label,
            sample=None if sample is None else sample.model_copy(),
            metadata=rollout.metadata,
            artifacts_dir=rollout.artifacts_dir,
        )
        returned = await grader(copy.deepcopy(self._grader_config)).grade(context)
        return check_graded(context.sample, returned)


async def _collect(rollout: Rollout, returned: object) -> RolloutSample | None:
    output = check_output(returned)
    if output is None:
        return await rollout.collect_sample()
    if output.messages is None and rollout.context.sample_source is not None:
        _log.warning(
            "Rollout %s has no sample: its output has no messages, and an explicit output "
            "beats the registered source.",
            rollout.request.id,
        )
    make = partial(sample_from_output, output, label=rollout.request.label)
    # Copying a long conversation would hold up the other rollouts of the loop.
    sample = await off_loop(make) if is_long(output.messages or ()) else make()
    return None if sample is None else await rollout.with_telemetry(sample)


def _max_concurrent(config: AgentWorkflowConfig | GraderConfig | None) -> int | None:
    return None if config is None else config.concurrency.max_concurrent
