"""The wire view: what trainers see of a rollout's outcome. Pure functions."""

import json
import logging
from dataclasses import dataclass
from typing import Any

import orjson

from osmosis_ai.rollout.types import (
    ExecutionOutcome,
    ExecutionResult,
    RolloutErrorCategory,
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

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FinalView:
    """What is sent of a rollout that has ended, made once.

    Attributes:
        status: The final status.
        reward: The reward, where it counts.
        err_message: What went wrong.
        err_category: What kind of failure it was.
        result: Body of the result route's answer.
    """

    status: RolloutStatus
    reward: float | None
    err_message: str | None
    err_category: RolloutErrorCategory | None
    result: bytes


def final_view(rollout_id: str, outcome: ExecutionOutcome) -> FinalView:
    """Make the view of an outcome; whatever is in its sample, the reward gets through."""
    result = outcome.result
    sample = _visible_sample(outcome)
    err_message, _ = json_safe(result.err_message, on_bad="replace")
    head: dict[str, Any] = {"rollout_id": rollout_id, "status": result.status.value}
    if result.err_message is not None:
        head["err_message"] = err_message
    if result.err_category is not None:
        head["err_category"] = result.err_category.value
    reward = None if sample is None else _earned_reward(result, sample)
    body = orjson.dumps(head) if sample is None else _encode_sample(head, sample, reward)
    return FinalView(result.status, reward, err_message, result.err_category, body)


def _visible_sample(outcome: ExecutionOutcome) -> RolloutSample | None:
    # A failed workflow's partial transcript is kept for the archive alone.
    if outcome.workflow.status is not RolloutStatus.SUCCESS:
        return None
    return outcome.result.sample


def _earned_reward(result: ExecutionResult, sample: RolloutSample) -> float | None:
    earned = result.status is RolloutStatus.SUCCESS and not sample.remove_sample
    return sample.reward if earned else None


def _encode_sample(head: dict[str, Any], sample: RolloutSample, reward: float | None) -> bytes:
    verdict = {"label": sample.label, "reward": reward, "remove_sample": sample.remove_sample}
    try:
        safe = sample.json_safe_copy()
        telemetry = {"metrics": safe.metrics, "extra_fields": safe.extra_fields}
        whole = {"messages": sample.messages, **verdict, **telemetry}
        return _encode({**head, "sample": whole})
    except BaseException as error:
        # A boundary: a sample holds foreign objects whose methods may raise anything, SystemExit
        # too, and an earned reward must not be lost to them.
        _log.warning(
            "Rollout %s: the sample cannot be encoded (%s), only its reward, label and flag "
            "are sent.",
            head["rollout_id"],
            type(error).__name__,
        )
        return _encode({**head, "sample": verdict})


def _encode(body: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(body, option=_STRICT)
    except TypeError:
        safe, replaced = json_safe(body, on_bad="replace")
    if replaced:
        _log.warning(
            "Rollout %s: %d value(s) that JSON cannot hold were replaced in the sample.",
            body["rollout_id"],
            replaced,
        )
    # Unlike orjson, the standard encoder takes integers beyond 64 bits.
    return json.dumps(safe, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
