"""The wire: requests and answers of the rollout server, and of its callbacks."""

import re
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from osmosis_ai.rollout.types.execution import (
    RolloutErrorCategory,
    RolloutErrorOrigin,
    RolloutStatus,
)
from osmosis_ai.rollout.types.messages import Messages
from osmosis_ai.rollout.types.sample import RolloutSample
from osmosis_ai.rollout.types.segment import PathSegment

POLLING_LEASE_HEADER = "X-Osmosis-Rollout-Lease"
"""The header that carries a polling client's lease token."""

# Visible ASCII, spaces inside only: what every HTTP implementation takes as a header's value.
_HEADER_SAFE = re.compile(r"[\x21-\x7e]+(?: +[\x21-\x7e]+)*")


def _check_header_value(value: str) -> str:
    if not _HEADER_SAFE.fullmatch(value):
        msg = "must be usable in a header: visible ASCII characters, with no space at either end"
        raise ValueError(msg)
    return value


def _check_http_url(value: str) -> str:
    msg = "must be an http:// or https:// URL with a host"
    try:
        parts = urlsplit(value)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname)
        _ = parts.port  # raises when it is no port number
    except ValueError:
        raise ValueError(msg) from None
    if not usable or not value.isprintable() or " " in value:
        raise ValueError(msg)
    return value


def _check_optional_key(value: str) -> str:
    return _check_header_value(value) if value else value


HttpUrl = Annotated[str, AfterValidator(_check_http_url)]
ApiKey = Annotated[str, AfterValidator(_check_header_value)]
# The trainer's own key may be empty, which means that callbacks carry none.
ControllerKey = Annotated[str, AfterValidator(_check_optional_key)]
Seconds = Annotated[float, Field(strict=True, allow_inf_nan=False)]


class _WireModel(BaseModel):
    # Requests hold keys: no error may repeat what was submitted. A process uses few of these
    # models, so each is built when it is first needed.
    model_config: ClassVar[ConfigDict] = ConfigDict(hide_input_in_errors=True, defer_build=True)


class RolloutInitRequest(_WireModel):
    """Body of `POST /rollout`; unknown keys are ignored.

    Attributes:
        initial_messages: The prompt; it may be empty.
        chat_completions_url: Base URL of the policy's endpoint, without `/chat/completions`.
        rollout_id: One path segment; the server makes one up when it is missing.
        label: The reference answer, for the grader.
        metadata: The dataset row's metadata, for workflow and grader.
        extra_fields: Kept in the archived trajectory and used for nothing else.
        llm_api_key: Bearer for the policy's endpoint; `controller_api_key` serves when missing.
        grade: Whether to grade.
        agent_timeout_sec: Budget of the workflow in seconds, time in the queue included.
        grader_timeout_sec: Budget of the grading in seconds.
        completion_callback_url: Where to report the end of the workflow.
        grader_callback_url: Where to report the end of the grading.
        controller_api_key: Bearer for the callbacks.
    """

    initial_messages: Messages
    chat_completions_url: HttpUrl
    rollout_id: PathSegment | None = None
    label: str | None = None
    metadata: dict[str, Any] | None = None
    extra_fields: dict[str, Any] | None = None
    llm_api_key: ApiKey | None = None
    grade: bool = True
    agent_timeout_sec: Seconds | None = None
    grader_timeout_sec: Seconds | None = None
    completion_callback_url: HttpUrl | None = None
    grader_callback_url: HttpUrl | None = None
    controller_api_key: ControllerKey | None = None


class RolloutInitResponse(_WireModel):
    """Answer 202 to `POST /rollout`.

    Attributes:
        rollout_id: The rollout's id, made by the server where the request had none.
        status: `queued`.
        polling_lease_token: What result polls send in `POLLING_LEASE_HEADER`.
        result_wait_timeout_sec: How long one result poll may wait, in seconds.
        polling_lease_timeout_sec: How long the rollout lives without a poll, in seconds.
    """

    rollout_id: str
    status: RolloutStatus = RolloutStatus.QUEUED
    polling_lease_token: str
    result_wait_timeout_sec: float
    polling_lease_timeout_sec: float


class RolloutResultResponse(_WireModel):
    """Answer to `GET /rollout/{id}/result`; while in progress it holds only the status.

    Attributes:
        rollout_id: The rollout's id.
        status: Where the rollout stands.
        sample: The sample of a workflow that succeeded.
        err_message: What went wrong, for people.
        err_category: What kind of failure it was.
        origin: Where the failure came from.
        retryable: Whether the same rollout may well succeed when it is sent again.
        grading_skipped: Why a workflow that succeeded was not graded.
        omitted: The fields that were left out, or cut, because they cannot be sent.
    """

    rollout_id: str
    status: RolloutStatus
    sample: RolloutSample | None = None
    err_message: str | None = None
    err_category: RolloutErrorCategory | None = None
    origin: RolloutErrorOrigin | None = None
    retryable: bool | None = None
    grading_skipped: str | None = None
    omitted: list[str] | None = None


class RolloutStatusResponse(_WireModel):
    """Answer to `GET /rollout/{id}/status`."""

    rollout_id: str
    status: RolloutStatus
    reward: float | None = None
    err_message: str | None = None


class CancelRolloutsRequest(_WireModel):
    """Body of `POST /rollout/cancel`: exactly one of the three.

    Attributes:
        ids: The rollouts with these ids.
        prefix: Every rollout whose id starts so; not empty.
        all: Every rollout, when true.
    """

    ids: list[PathSegment] | None = None
    prefix: str | None = Field(default=None, min_length=1)
    all: bool = False

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.ids is not None) + (self.prefix is not None) + self.all != 1:
            msg = "give exactly one of ids, prefix and all (true)"
            raise ValueError(msg)
        return self


class CancelRolloutsResponse(_WireModel):
    """Answer to `POST /rollout/cancel`.

    Attributes:
        dispositions: By id: `cancelled_queued`, `cancelled_running` or `not_found`.
    """

    dispositions: dict[str, str]


class GraderStatus(StrEnum):
    """How the grading ended, on the grader callback."""

    SUCCESS = "success"
    FAILURE = "failure"


class RolloutCompleteRequest(_WireModel):
    """Body of the completion callback: the workflow's phase has ended.

    Attributes:
        status: How it ended: success, failure or cancelled.
        rollout_id: The rollout's id.
        extra_fields: None.
        err_message: What went wrong, for people.
        err_category: What kind of failure it was.
        origin: Where the failure came from.
        retryable: Whether the same rollout may well succeed when it is sent again.
        omitted: The fields that were cut because they cannot be sent.
    """

    status: RolloutStatus
    rollout_id: str
    extra_fields: dict[str, Any] | None = None
    err_message: str | None = None
    err_category: RolloutErrorCategory | None = None
    origin: RolloutErrorOrigin | None = None
    retryable: bool | None = None
    omitted: list[str] | None = None


class GraderCompleteRequest(_WireModel):
    """Body of the grader callback: the rollout's sample and reward, or why there is none.

    Attributes:
        status: Whether there is a graded sample.
        rollout_id: The rollout's id.
        sample: The sample; None if the workflow failed, or nothing was graded.
        err_message: What went wrong, or why nothing was graded, for people.
        err_category: What kind of failure it was.
        origin: Where the failure came from.
        retryable: Whether the same rollout may well succeed when it is sent again.
        grading_skipped: Why a workflow that succeeded was not graded.
        omitted: The fields that were left out, or cut, because they cannot be sent.
    """

    status: GraderStatus
    rollout_id: str
    sample: RolloutSample | None = None
    err_message: str | None = None
    err_category: RolloutErrorCategory | None = None
    origin: RolloutErrorOrigin | None = None
    retryable: bool | None = None
    grading_skipped: str | None = None
    omitted: list[str] | None = None
