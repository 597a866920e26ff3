"""The archive view: what is kept of a rollout, and its way to the disk."""

import asyncio
import logging
from pathlib import Path

from osmosis_ai.rollout.artifacts import set_aside
from osmosis_ai.rollout.threads import off_loop
from osmosis_ai.rollout.trajectory import TrajectoryReport, save_trajectory
from osmosis_ai.rollout.types import ExecutionOutcome, ExecutionResult, RolloutInitRequest

# A file system that hangs does not hold up an answer any longer.
_PATIENCE_SEC = 5.0

_log = logging.getLogger(__name__)


def archived_result(
    reported: ExecutionResult | None, outcome: ExecutionOutcome, ended: ExecutionResult | None
) -> ExecutionResult:
    """Return what the archive keeps: the latest sample and diagnostics, under the real ending.

    A rollout that was ended from outside keeps its transcript but no reward: the result that came
    later was dropped.

    Args:
        reported: The workflow's result as it was reported when grading began.
        outcome: What the backend returned.
        ended: The ending from outside, if there was one.
    """
    phases = [reported, outcome.workflow, outcome.grader]
    results = [result for result in phases if result is not None]
    sample = next((r.sample for r in reversed(results) if r.sample is not None), None)
    diagnostics = next(
        (r.extra_fields for r in reversed(results) if r.extra_fields is not None), None
    )
    result = ended or outcome.result
    if sample is result.sample and diagnostics is result.extra_fields:
        return result
    if sample is not None and ended is not None:
        sample = sample.model_copy(update={"reward": None})
    return result.model_copy(update={"sample": sample, "extra_fields": diagnostics})


class Record:
    """What is archived of one rollout: its result, and what the trainer reports of it."""

    def __init__(self, root: Path, rollout_id: str, request: RolloutInitRequest) -> None:
        self._root = root
        self._rollout_id = rollout_id
        self._request = request
        self._result: ExecutionResult | None = None
        self._grading_skipped: str | None = None
        self._report: TrajectoryReport | None = None
        self._writing = asyncio.Lock()

    async def save(self, result: ExecutionResult, grading_skipped: str | None) -> None:
        """Save trajectory and diagnostics of the rollout's one result; nothing is raised.

        Of the names of these files, those that there is no content for hold nothing afterwards.
        """
        self._result = result
        self._grading_skipped = grading_skipped
        await self._write(fresh=True)

    async def add(self, report: TrajectoryReport) -> None:
        """Save what the trainer reports; it replaces an earlier report. Nothing is raised."""
        self._report = report
        await self._write()

    async def _write(self, *, fresh: bool = False) -> None:
        request = self._request
        async with self._writing:
            if self._result is None:
                return
            await save_trajectory(
                rollout_id=self._rollout_id,
                result=self._result,
                request_label=request.label,
                request_metadata=request.metadata,
                request_extra_fields=request.extra_fields,
                initial_messages=request.initial_messages,
                report=self._report,
                artifact_root=self._root,
                grading_skipped=self._grading_skipped,
                fresh=fresh,
            )


class Archive:
    """The rollouts' folders below one root.

    Args:
        root: The directory that holds them.
        makes_room: Whether to set aside what an earlier rollout of the same id left behind; a
            backend that names the root does so by itself.
    """

    def __init__(self, root: Path, *, makes_room: bool) -> None:
        self._root = root
        self.makes_room = makes_room

    def open(self, rollout_id: str, request: RolloutInitRequest) -> Record:
        """Return a new rollout's record; nothing is written yet."""
        return Record(self._root, rollout_id, request)

    async def make_room(self, rollout_id: str) -> None:
        """Set aside what an earlier rollout of the same id left behind; nothing is raised."""
        try:
            async with asyncio.timeout(_PATIENCE_SEC):
                await off_loop(set_aside, self._root, rollout_id)
        except OSError as error:  # a TimeoutError is one
            _log.warning(
                "Rollout %s: the files of an earlier rollout of this id cannot be moved away: %s.",
                rollout_id,
                error.strerror or "the file system does not answer",
            )
