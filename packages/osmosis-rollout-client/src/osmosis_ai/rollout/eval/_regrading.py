"""An app that grades stored samples anew; a script for `_child`, in the user's environment.

It needs osmosis-rollout-core and the server, as the user's own app does, and not this package.
"""

import asyncio
import json
from contextlib import suppress
from pathlib import Path
from typing import Any, override

from osmosis_ai.rollout import ExecutionBackend, ExecutionOutcome, ExecutionRequest, ExecutionResult
from osmosis_ai.rollout.artifacts import copy_tree
from osmosis_ai.rollout.backend import LocalBackend, report_status
from osmosis_ai.rollout.types import RolloutSample, RolloutStatus


class Regrading(ExecutionBackend):
    """Executes a rollout by having another backend's grader grade the sample of an earlier one.

    Args:
        backend: The backend with the grader.
        run: The earlier run's directory; its rollouts have the same ids.
    """

    def __init__(self, backend: LocalBackend, run: Path) -> None:
        self._backend = backend
        self._journal = run / "results.jsonl"
        self._rollouts = run / "rollouts"
        self._offsets = self._index()

    @property
    @override
    def artifact_root(self) -> Path:
        return self._backend.artifact_root

    @override
    async def execute(self, request: ExecutionRequest) -> ExecutionOutcome:
        """Grade the stored sample, in the presence of a copy of the stored artifacts."""
        workflow = await asyncio.to_thread(self._restore, request.id)
        report_status(RolloutStatus.RUNNING)
        report_status(RolloutStatus.GRADING, workflow)
        grader = await self._backend.run_grader(request, workflow)
        return ExecutionOutcome(workflow=workflow, grader=grader)

    @override
    def cancel_rollouts(
        self, ids: list[str] | None = None, prefix: str | None = None, all: bool = False
    ) -> dict[str, str]:
        """Stop gradings."""
        return self._backend.cancel_rollouts(ids, prefix, all)

    @override
    def health(self) -> dict[str, Any]:
        """Return the other backend's health."""
        return self._backend.health()

    @override
    async def shutdown(self) -> None:
        """Shut the other backend down."""
        await self._backend.shutdown()

    def _index(self) -> dict[str, int]:
        offsets: dict[str, int] = {}
        offset = 0
        with self._journal.open("rb") as lines:
            for line in lines:
                offsets[json.loads(line)["outcome"]["rollout_id"]] = offset
                offset += len(line)
        return offsets

    def _restore(self, rollout_id: str) -> ExecutionResult:
        with self._journal.open("rb") as file:
            file.seek(self._offsets[rollout_id])
            sample = json.loads(file.readline())["sample"]
        artifacts = f"{rollout_id}/artifacts"
        # The server of the run may have been on another machine.
        with suppress(FileNotFoundError):
            copy_tree(self._rollouts, artifacts, self.artifact_root, artifacts)
        return ExecutionResult(
            status=RolloutStatus.SUCCESS, sample=RolloutSample.model_validate(sample)
        )


def wrap(app: Any, argument: str) -> Any:
    """Return an app that regrades the run in the directory `argument` with an app's grader."""
    from osmosis_ai.rollout.server import create_rollout_server

    backend = getattr(getattr(app, "state", None), "backend", None)
    if not isinstance(backend, LocalBackend):
        msg = "regrading needs an app that create_rollout_server made, on a LocalBackend"
        raise TypeError(msg)
    return create_rollout_server(backend=Regrading(backend, Path(argument)))
