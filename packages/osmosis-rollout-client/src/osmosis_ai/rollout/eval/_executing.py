"""One job, run by a rollout server."""

import time
from dataclasses import dataclass, replace

from osmosis_ai.rollout.client import (
    RolloutAdmissionTimeoutError,
    RolloutClient,
    RolloutProtocolError,
)
from osmosis_ai.rollout.eval._options import EvalOptions
from osmosis_ai.rollout.eval._outcomes import Job, Outcome, OutcomeStatus
from osmosis_ai.rollout.eval._policy import Policy
from osmosis_ai.rollout.types import RolloutResultResponse


@dataclass(frozen=True, slots=True)
class Executor:
    """Runs jobs on one server."""

    client: RolloutClient
    policy: Policy
    options: EvalOptions

    async def execute(self, job: Job) -> Outcome:
        """Run one job and return how it ended; a server that fails is a failure of the job."""
        endpoint = self.policy.endpoint(job)
        began = time.monotonic()
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
            )
        except (RolloutAdmissionTimeoutError, RolloutProtocolError) as error:
            duration_sec = time.monotonic() - began
            outcome = Outcome.without_result(
                job, OutcomeStatus.FAILURE, str(error), duration_sec=duration_sec
            )
            return replace(outcome, policy=self.policy.report(job, None))
        outcome = self._outcome(job, result, time.monotonic() - began)
        messages = result.sample.messages if result.sample else None
        return replace(outcome, policy=self.policy.report(job, messages))

    def _outcome(self, job: Job, result: RolloutResultResponse, duration_sec: float) -> Outcome:
        status = OutcomeStatus(result.status.value)
        reward = None
        # A failure has no reward, whatever a server says: it must never look like a wrong answer.
        if status is OutcomeStatus.SUCCESS and result.sample and not result.sample.remove_sample:
            reward = result.sample.reward
        return Outcome(
            row=job.row.index,
            line=job.row.line,
            attempt=job.attempt.number,
            model=job.attempt.model,
            rollout_id=job.rollout_id,
            status=status,
            reward=reward,
            passed=None if reward is None else reward >= self.options.pass_threshold,
            err_message=result.err_message,
            err_category=result.err_category,
            duration_sec=duration_sec,
        )
