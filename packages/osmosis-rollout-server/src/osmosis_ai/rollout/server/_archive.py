"""The archive view: what is kept of a rollout, and its way to the disk."""

import asyncio
import logging
import os
from pathlib import Path

from osmosis_ai.rollout.artifacts import rollout_dir, set_aside
from osmosis_ai.rollout.server._registry import Rollout
from osmosis_ai.rollout.trajectory import save_trajectory
from osmosis_ai.rollout.types import ExecutionOutcome, ExecutionResult, RolloutInitRequest

_log = logging.getLogger(__name__)


def archived_result(rollout: Rollout, outcome: ExecutionOutcome) -> ExecutionResult:
    """Return what the archive keeps: the latest sample and diagnostics, under the real ending.

    A rollout that was ended from outside keeps its transcript but no reward: the result that came
    later was dropped.
    """
    phases = [rollout.workflow, outcome.workflow, outcome.grader]
    results = [result for result in phases if result is not None]
    sample = next((r.sample for r in reversed(results) if r.sample is not None), None)
    diagnostics = next(
        (r.extra_fields for r in reversed(results) if r.extra_fields is not None), None
    )
    ending = rollout.ending or outcome.result
    if sample is not None and rollout.ending is not None:
        sample = sample.model_copy(update={"reward": None})
    return ending.model_copy(update={"sample": sample, "extra_fields": diagnostics})


class Archive:
    """The rollouts' folders below one root."""

    def __init__(self, root: Path) -> None:
        self._root = root

    async def make_room(self, rollout_id: str) -> None:
        """Set aside what an earlier rollout of the same id left behind."""
        # A stat on the loop is cheaper than a thread for every rollout.
        if not os.path.lexists(rollout_dir(self._root, rollout_id)):  # noqa: ASYNC240
            return
        try:
            await asyncio.to_thread(set_aside, self._root, rollout_id)
        except OSError as error:
            _log.warning(
                "Rollout %s: the files of an earlier rollout of this id cannot be moved away: %s.",
                rollout_id,
                error.strerror,
            )

    async def save(
        self, rollout: Rollout, request: RolloutInitRequest, outcome: ExecutionOutcome
    ) -> None:
        """Save the rollout's trajectory and diagnostics; nothing is raised."""
        result = archived_result(rollout, outcome)
        if result.sample is None and result.extra_fields is None:
            return
        await save_trajectory(
            rollout_id=rollout.id,
            result=result,
            request_label=request.label,
            request_metadata=request.metadata,
            request_extra_fields=request.extra_fields,
            initial_messages=request.initial_messages,
            artifact_root=self._root,
        )
