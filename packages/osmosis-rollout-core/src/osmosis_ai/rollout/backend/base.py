"""The contract for backends, and how they tell their progress."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from osmosis_ai.rollout.types.execution import (
    ExecutionOutcome,
    ExecutionRequest,
    ExecutionResult,
    RolloutStatus,
)

type StatusReporter = Callable[[RolloutStatus, ExecutionResult | None], None]
"""Called with a rollout's new status; the workflow's result goes along when grading begins."""

_reporter: ContextVar[StatusReporter | None] = ContextVar("osmosis_status_reporter", default=None)


def report_status(status: RolloutStatus, workflow: ExecutionResult | None = None) -> None:
    """Tell whoever executes the current rollout where it stands; without a listener, do nothing.

    Args:
        status: The new status.
        workflow: The workflow's result, at the change to grading.
    """
    if reporter := _reporter.get():
        reporter(status, workflow)


@contextmanager
def reporting_to(reporter: StatusReporter) -> Generator[None]:
    """Send the status reports of the executions that start inside to `reporter`."""
    token = _reporter.set(reporter)
    try:
        yield
    finally:
        _reporter.reset(token)


class ExecutionBackend(ABC):
    """Turns an execution request into an outcome; it knows nothing of wires and deliveries.

    `execute` runs under the rollout's `RolloutContext`, which names the policy's endpoint.
    """

    @property
    def artifact_root(self) -> Path | None:
        """The directory that holds one folder per rollout; None leaves the choice to the server.

        A backend that names one sees to it that the files of a rollout do not mix with those of an
        earlier one of the same id, as `artifacts.provision` does.
        """
        return None

    @abstractmethod
    async def execute(self, request: ExecutionRequest) -> ExecutionOutcome:
        """Run the rollout to its end and return what came of it.

        Failures of user code are outcomes. Progress goes to `report_status`.

        Raises:
            asyncio.CancelledError: the calling task was cancelled.
        """

    def has_capacity(self) -> bool:
        """Tell whether another rollout would be admitted now."""
        return True

    def rollout_status(self, rollout_id: str, /) -> dict[str, Any] | None:
        """Return `{"status": ...}` of an unfinished rollout, or None when it is not known."""
        return None

    def is_in_use(self, rollout_id: str, /) -> bool:
        """Tell whether `execute` would refuse this id now, as code of such a rollout still runs."""
        return False

    def cancel_rollouts(
        self,
        ids: list[str] | None = None,
        prefix: str | None = None,
        all: bool = False,
    ) -> dict[str, str]:
        """Stop unfinished rollouts: those named, those whose id starts with `prefix`, or all.

        Returns:
            By id: `cancelled_queued`, `cancelled_running` or `not_found`.
        """
        return {}

    def health(self) -> dict[str, Any]:
        """Return what the health route shows of the backend, `{"status": "ok"}` at least."""
        return {"status": "ok"}

    async def shutdown(self) -> None:  # noqa: B027 - most backends hold nothing
        """Release what the backend holds; called when no further execution is to start."""
