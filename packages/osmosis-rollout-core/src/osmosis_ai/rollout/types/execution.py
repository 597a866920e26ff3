"""What goes into a backend and what comes out of it."""

from enum import StrEnum
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from osmosis_ai.rollout.types.messages import Messages
from osmosis_ai.rollout.types.sample import RolloutSample
from osmosis_ai.rollout.types.segment import PathSegment


class RolloutStatus(StrEnum):
    """Where a rollout stands; the last four never change again."""

    QUEUED = "queued"
    RUNNING = "running"
    GRADING = "grading"
    SUCCESS = "success"
    FAILURE = "failure"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"

    @property
    def is_final(self) -> bool:
        """Whether the rollout has ended."""
        return self in _FINAL


_FINAL = frozenset({RolloutStatus.SUCCESS, RolloutStatus.FAILURE, RolloutStatus.CANCELLED})


class RolloutErrorCategory(StrEnum):
    """What kind of failure ended a rollout."""

    TIMEOUT = "timeout"
    VALIDATION_ERROR = "validation_error"
    HTTP_ERROR = "http_error"
    """The policy endpoint failed: 408, 429, 5xx, a broken connection, a truncated stream."""
    AGENT_ERROR = "agent_error"
    LEASE_EXPIRED = "lease_expired"
    INTERNAL_ERROR = "internal_error"


class RolloutErrorOrigin(StrEnum):
    """Where a failure came from; `RolloutErrorCategory` says what kind it was."""

    POLICY_ENDPOINT = "policy_endpoint"
    TOOL = "tool"
    WORKFLOW = "workflow"
    GRADER = "grader"
    DEADLINE = "deadline"
    """The rollout's own budget ran out; a timeout inside of user code is the code's."""
    CANCELLED = "cancelled"
    INFRASTRUCTURE = "infrastructure"
    """The server or its backend: a crash, a shutdown, a client that stopped to poll."""


class ExecutionRequest(BaseModel):
    """One rollout for a backend to execute.

    Attributes:
        id: The rollout's id, one path segment.
        prompt: The dataset row's messages.
        label: The reference answer; it reaches the grader only.
        metadata: The dataset row's metadata, for workflow and grader.
        agent_timeout_sec: Budget of the workflow in seconds, time in the queue included; None is
            unbounded, zero and below have already expired.
        grader_timeout_sec: Budget of the grading in seconds, likewise.
        grade: Whether grading is asked for.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(hide_input_in_errors=True)

    id: PathSegment
    prompt: Messages
    label: str | None = None
    metadata: dict[str, Any] | None = None
    agent_timeout_sec: float | None = Field(default=None, allow_inf_nan=False)
    grader_timeout_sec: float | None = Field(default=None, allow_inf_nan=False)
    grade: bool = True


class ExecutionResult(BaseModel):
    """The outcome of one phase, the workflow's or the grader's.

    Attributes:
        status: How the phase ended.
        sample: The sample, where there is one; of a failed workflow, the partial one.
        err_message: What went wrong, for people.
        err_category: What kind of failure it was.
        extra_fields: The backend's diagnostics; they are archived and never sent to a trainer.
        origin: Where a failure came from.
        retryable: Whether the same rollout may well succeed when it is sent again.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(hide_input_in_errors=True)

    status: RolloutStatus
    sample: RolloutSample | None = None
    err_message: str | None = None
    err_category: RolloutErrorCategory | None = None
    extra_fields: dict[str, Any] | None = None
    origin: RolloutErrorOrigin | None = None
    retryable: bool | None = None


class ExecutionOutcome(BaseModel):
    """What a backend returns for a rollout.

    Attributes:
        workflow: The workflow's result.
        grader: The grader's result; None when there was no grading.
        grading_skipped: Why a workflow that succeeded was not graded.
    """

    workflow: ExecutionResult
    grader: ExecutionResult | None = None
    grading_skipped: str | None = None

    @property
    def result(self) -> ExecutionResult:
        """The result that counts: the grader's if there is one, else the workflow's."""
        return self.grader or self.workflow
