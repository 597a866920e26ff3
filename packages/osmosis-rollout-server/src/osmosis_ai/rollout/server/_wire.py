"""The wire view: what trainers see of a rollout's outcome. Pure functions."""

import json
import logging
from dataclasses import dataclass
from typing import Any, Self

import orjson

from osmosis_ai.rollout.types import (
    ExecutionOutcome,
    ExecutionResult,
    GraderStatus,
    RolloutErrorCategory,
    RolloutErrorOrigin,
    RolloutSample,
    RolloutStatus,
    json_safe,
)

# What orjson would encode in a way of its own goes through json_safe like every foreign value.
_STRICT = (
    orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
    | orjson.OPT_PASSTHROUGH_SUBCLASS
)

# What a reduced body keeps of texts that have no bound of their own, in characters.
_REDUCED_TEXT = 2000

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PhaseView:
    """How the workflow, or the whole rollout, ended; all of it can be encoded."""

    status: RolloutStatus
    err_message: str | None
    err_category: RolloutErrorCategory | None
    origin: RolloutErrorOrigin | None
    retryable: bool | None

    @classmethod
    def of(cls, result: ExecutionResult) -> Self:
        """Make the view of a phase's result."""
        message, _ = json_safe(result.err_message, on_bad="replace")
        return cls(result.status, message, result.err_category, result.origin, result.retryable)


@dataclass(frozen=True, slots=True)
class SampleView:
    """A sample, encoded.

    Attributes:
        verdict: Label, reward and flag: they get through whatever else is in the sample.
        whole: The sample as JSON; None when it cannot be encoded.
    """

    verdict: dict[str, Any]
    whole: bytes | None


@dataclass(frozen=True, slots=True)
class FinalView:
    """What can be sent of a rollout that has ended. It never changes, nor do the bodies made of it.

    Attributes:
        rollout_id: The rollout's id.
        workflow: How the workflow ended.
        ending: How the rollout ended.
        sample: The sample of a workflow that succeeded.
        is_graded: Whether there was a grading, successful or not.
        grading_skipped: Why a workflow that succeeded was not graded, where that is known.
    """

    rollout_id: str
    workflow: PhaseView
    ending: PhaseView
    sample: SampleView | None
    is_graded: bool
    grading_skipped: str | None

    @property
    def reward(self) -> float | None:
        """The reward, where it counts."""
        return None if self.sample is None else self.sample.verdict["reward"]


def final_view(rollout_id: str, outcome: ExecutionOutcome) -> FinalView:
    """Make the view of an outcome; whatever is in its sample, the reward gets through."""
    # A failed workflow's partial transcript is kept for the archive alone.
    visible = outcome.workflow.status is RolloutStatus.SUCCESS
    sample = outcome.result.sample if visible else None
    return FinalView(
        rollout_id=rollout_id,
        workflow=PhaseView.of(outcome.workflow),
        ending=PhaseView.of(outcome.result),
        sample=None if sample is None else _sample_view(rollout_id, outcome.result, sample),
        is_graded=outcome.grader is not None,
        grading_skipped=outcome.grading_skipped,
    )


def polled_body(view: FinalView) -> bytes:
    """Return the body of the result route's last answer."""
    sample, omitted = _sample(view.sample)
    ending = view.ending
    # Field by field: asdict() would copy each of them deeply, for every poll.
    fields = _present(
        status=ending.status,
        err_message=ending.err_message,
        err_category=ending.err_category,
        origin=ending.origin,
        retryable=ending.retryable,
        grading_skipped=view.grading_skipped,
        sample=sample,
        omitted=omitted,
    )
    return orjson.dumps({"rollout_id": view.rollout_id, **fields})


def completion_body(rollout_id: str, workflow: PhaseView, *, reduced: bool = False) -> bytes:
    """Return the body of the completion callback, or a smaller one that says what it left out."""
    message, omitted = _message(workflow.err_message, reduced=reduced)
    body = {
        "status": workflow.status,
        "rollout_id": rollout_id,
        "extra_fields": None,
        "err_message": message,
        "err_category": workflow.err_category,
        **_present(origin=workflow.origin, retryable=workflow.retryable, omitted=omitted),
    }
    return orjson.dumps(body)


def grader_body(view: FinalView, *, reduced: bool = False) -> bytes:
    """Return the body of the grader callback, or a smaller one that says what it left out.

    Without a grading there is no sample in it: the channel gets its failure, and why.
    """
    ending = view.ending
    is_success = ending.status is RolloutStatus.SUCCESS and view.is_graded
    why = ending.err_message
    if ending.status is RolloutStatus.SUCCESS and not view.is_graded:
        why = f"grading was skipped: {view.grading_skipped or 'the backend did not grade'}"
    message, cut = _message(why, reduced=reduced)
    sample, omitted = _sample(view.sample if view.is_graded else None, reduced=reduced)
    body = {
        "status": GraderStatus.SUCCESS if is_success else GraderStatus.FAILURE,
        "rollout_id": view.rollout_id,
        "sample": sample,
        "err_message": message,
        "err_category": ending.err_category,
        **_present(
            origin=ending.origin,
            retryable=ending.retryable,
            grading_skipped=view.grading_skipped,
            omitted=[*omitted, *cut],
        ),
    }
    return orjson.dumps(body)


def _sample(view: SampleView | None, *, reduced: bool = False) -> tuple[Any, list[str]]:
    """Return what to send of a sample, and what that leaves out."""
    if view is None:
        return None, []
    if view.whole is not None and not reduced:
        return orjson.Fragment(view.whole), []
    omitted = ["sample.messages", "sample.metrics", "sample.extra_fields"]
    label = view.verdict["label"]
    if reduced and isinstance(label, str) and len(label) > _REDUCED_TEXT:
        return {**view.verdict, "label": None}, [*omitted, "sample.label"]
    return view.verdict, omitted


def _message(text: str | None, *, reduced: bool) -> tuple[str | None, list[str]]:
    if not reduced or text is None or len(text) <= _REDUCED_TEXT:
        return text, []
    return f"{text[:_REDUCED_TEXT]}… (cut)", ["err_message"]


def _present(**fields: Any) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None and value != []}


def _sample_view(rollout_id: str, result: ExecutionResult, sample: RolloutSample) -> SampleView:
    earned = result.status is RolloutStatus.SUCCESS and not sample.remove_sample
    label, _ = json_safe(sample.label, on_bad="replace")
    verdict = {
        "label": label,
        "reward": sample.reward if earned else None,
        "remove_sample": sample.remove_sample,
    }
    try:
        safe = sample.json_safe_copy() if sample.metrics or sample.extra_fields else sample
        telemetry = {"metrics": safe.metrics, "extra_fields": safe.extra_fields}
        whole = _encode(rollout_id, {"messages": list(sample.messages), **verdict, **telemetry})
    except BaseException as error:
        # A boundary: a sample holds foreign objects whose methods may raise anything, SystemExit
        # too, and an earned reward must not be lost to them.
        _log.warning(
            "Rollout %s: the sample cannot be encoded (%s), only its reward, label and flag "
            "are sent.",
            rollout_id,
            type(error).__name__,
        )
        whole = None
    return SampleView(verdict, whole)


def _encode(rollout_id: str, sample: dict[str, Any]) -> bytes:
    try:
        # One by one, so that the loop gets its turn between the messages of a large sample.
        messages = [orjson.dumps(message, option=_STRICT) for message in sample["messages"]]
        text = orjson.Fragment(b"[%b]" % b",".join(messages))
        return orjson.dumps({**sample, "messages": text}, option=_STRICT)
    except TypeError:
        safe, replaced = json_safe(sample, on_bad="replace")
    if replaced:
        _log.warning(
            "Rollout %s: %d value(s) that JSON cannot hold were replaced in the sample.",
            rollout_id,
            replaced,
        )
    # Unlike orjson, the standard encoder takes integers beyond 64 bits.
    return json.dumps(safe, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
