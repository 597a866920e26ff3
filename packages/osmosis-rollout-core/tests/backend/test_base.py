"""What a backend has without saying so."""

from osmosis_ai.rollout import (
    ExecutionBackend,
    ExecutionOutcome,
    ExecutionRequest,
    ExecutionResult,
    RolloutStatus,
)
from osmosis_ai.rollout.backend import report_status, reporting_to


class Minimal(ExecutionBackend):
    """Implements what must be implemented."""

    async def execute(self, request: ExecutionRequest) -> ExecutionOutcome:
        """Succeed."""
        report_status(RolloutStatus.RUNNING)
        return ExecutionOutcome(workflow=ExecutionResult(status=RolloutStatus.SUCCESS))


async def test_defaults() -> None:
    """Only `execute` has to be written."""
    backend = Minimal()
    assert backend.artifact_root is None
    assert backend.has_capacity()
    assert backend.rollout_status("r-1") is None
    assert backend.cancel_rollouts(all=True) == {}
    assert backend.health() == {"status": "ok"}
    await backend.shutdown()


async def test_reports_go_to_the_innermost_listener() -> None:
    """Outside of one they go nowhere."""
    request = ExecutionRequest(id="r-1", prompt=[])
    outer: list[RolloutStatus] = []
    inner: list[RolloutStatus] = []
    await Minimal().execute(request)
    with reporting_to(lambda status, _: outer.append(status)):
        with reporting_to(lambda status, _: inner.append(status)):
            await Minimal().execute(request)
        report_status(RolloutStatus.GRADING)
    assert (outer, inner) == (["grading"], ["running"])
