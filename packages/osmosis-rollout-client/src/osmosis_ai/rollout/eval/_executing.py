"""One job, run by a rollout server."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from osmosis_ai.rollout.client import (
    RolloutAdmissionTimeoutError,
    RolloutClient,
    RolloutProtocolError,
)
from osmosis_ai.rollout.eval._conversation import measure
from osmosis_ai.rollout.eval._journal import Entry
from osmosis_ai.rollout.eval._options import EvalOptions
from osmosis_ai.rollout.eval._outcomes import Job, Outcome, OutcomeStatus
from osmosis_ai.rollout.eval._policy import Policy
from osmosis_ai.rollout.types import (
    RolloutErrorCategory,
    RolloutErrorOrigin,
    RolloutResultResponse,
    RolloutStatus,
)
from osmosis_ai.rollout.types.json_safety import json_safe

_ORIGINS = {
    RolloutErrorCategory.HTTP_ERROR: RolloutErrorOrigin.POLICY_ENDPOINT,
    RolloutErrorCategory.TIMEOUT: RolloutErrorOrigin.DEADLINE,
    RolloutErrorCategory.LEASE_EXPIRED: RolloutErrorOrigin.INFRASTRUCTURE,
    RolloutErrorCategory.INTERNAL_ERROR: RolloutErrorOrigin.INFRASTRUCTURE,
}
"""Where failures of a category come from, as far as it tells."""


@dataclass(frozen=True, slots=True)
class Executor:
    """Runs jobs on one server."""

    client: RolloutClient
    policy: Policy
    options: EvalOptions

    async def execute(self, job: Job) -> Entry:
        """Run one job and return how it ended; a server that fails is a failure of the job."""
        endpoint = self.policy.endpoint(job)
        clock = _Clock()
        try:
            result = await self.client.run_rollout(
                job.row.prompt,
                endpoint.url,
                job.rollout_id,
                llm_api_key=endpoint.key,
                label=job.row.label,
                metadata=job.row.metadata,
                agent_timeout_sec=self.options.agent_timeout_sec,
                grader_timeout_sec=self.options.grader_timeout_sec,
                on_status=clock.note,
                grader_callback_url=endpoint.callback_url,
                controller_api_key=endpoint.key if endpoint.callback_url else None,
            )
        except (RolloutAdmissionTimeoutError, RolloutProtocolError) as error:
            outcome = Outcome.of(
                job,
                OutcomeStatus.FAILURE,
                err_message=str(error),
                origin=RolloutErrorOrigin.INFRASTRUCTURE,
                policy=self.policy.report(job, None),
                **clock.phases(),
            )
            return Entry.of(outcome, job.row)
        return self._entry(job, result, clock)

    def _entry(self, job: Job, result: RolloutResultResponse, clock: "_Clock") -> Entry:
        status = OutcomeStatus(result.status.value)
        phases = clock.phases()
        sample = result.sample
        reward = None
        # A failure has no reward, whatever a server says: it must never look like a wrong answer.
        if status is OutcomeStatus.SUCCESS and sample and not sample.remove_sample:
            reward = sample.reward
        messages = sample.messages if sample else None
        report, _ = json_safe(self.policy.report(job, messages), on_bad="replace")
        outcome = Outcome.of(
            job,
            status,
            reward=reward,
            passed=None if reward is None else reward >= self.options.pass_threshold,
            err_message=result.err_message,
            err_category=result.err_category,
            origin=_origin(result, clock),
            policy=report,
            **phases,
            **_numbers(messages, report),
        )
        if sample is None:
            return Entry.of(outcome, job.row)
        kept, _ = json_safe(sample.model_dump(exclude={"trajectory_messages"}), on_bad="replace")
        return Entry.of(outcome, job.row, kept)


@dataclass(slots=True)
class _Clock:
    """Takes the time of a rollout, phase by phase."""

    began: float = field(default_factory=time.monotonic)
    told: dict[RolloutStatus, float] = field(default_factory=dict[RolloutStatus, float])

    def note(self, status: RolloutStatus) -> None:
        """Note that the server told a new status."""
        self.told.setdefault(status, time.monotonic())

    def phases(self) -> dict[str, float | None]:
        """Return the durations up to now; a phase that was over before it was told has none."""
        ended = time.monotonic()
        running = self.told.get(RolloutStatus.RUNNING)
        grading = self.told.get(RolloutStatus.GRADING)
        return {
            "duration_sec": ended - self.began,
            "queued_sec": None if running is None else running - self.began,
            "workflow_sec": None if running is None else (grading or ended) - running,
            "grading_sec": None if grading is None else ended - grading,
        }


def _origin(result: RolloutResultResponse, clock: _Clock) -> str | None:
    if result.status is RolloutStatus.SUCCESS:
        return None
    if result.origin is not None:
        return result.origin
    if result.status is RolloutStatus.CANCELLED:
        return RolloutErrorOrigin.CANCELLED
    # An older server does not tell.
    graded = RolloutStatus.GRADING in clock.told
    phase = RolloutErrorOrigin.GRADER if graded else RolloutErrorOrigin.WORKFLOW
    return _ORIGINS.get(result.err_category, phase) if result.err_category else phase


def _numbers(
    messages: Sequence[Mapping[str, Any]] | None, report: Mapping[str, Any] | None
) -> dict[str, int | None]:
    numbers: dict[str, int | None] = {} if messages is None else asdict(measure(messages))
    for name in ("prompt_tokens", "completion_tokens"):
        told = (report or {}).get(name)
        if isinstance(told, int):
            numbers[name] = told
    return numbers
