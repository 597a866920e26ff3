"""Reports that a trainer gives of its model calls, laid over the steps that the calls made.

Format of the metrics: https://www.harborframework.com/docs/agents/trajectory-format
"""

import logging
import math
from typing import Any, ClassVar, Final, Self, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from osmosis_ai.rollout.trajectory._json import MAX_INT, JsonObject, clean, clean_members
from osmosis_ai.rollout.trajectory._models import FinalMetrics
from osmosis_ai.rollout.trajectory._usage import normal_metrics

_log = logging.getLogger(__name__)

_TOTALS: Final = {
    "total_prompt_tokens": "prompt_tokens",
    "total_completion_tokens": "completion_tokens",
    "total_cached_tokens": "cached_tokens",
    "total_cost_usd": "cost_usd",
}


class _ReportModel(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="ignore", hide_input_in_errors=True)


class CallReport(_ReportModel):
    """What a trainer knows of one model call; what is None does not replace what a step knows.

    Attributes:
        prompt_tokens: Tokens that went in, cached ones included.
        completion_tokens: Tokens that came out.
        cached_tokens: The part of `prompt_tokens` that was cached.
        cost_usd: The price of the call in US dollars.
        prompt_token_ids: The tokens that went in.
        completion_token_ids: The tokens that came out.
        logprobs: The natural log probability of each token that came out, None where unknown.
        model_name: The model that answered.
        extra: Anything else.
    """

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    cost_usd: float | None = None
    prompt_token_ids: list[int] | None = None
    completion_token_ids: list[int] | None = None
    logprobs: list[float | None] | None = None
    model_name: str | None = None
    extra: dict[str, Any] | None = None


class SampleReport(_ReportModel):
    """What a trainer knows of one sample.

    Attributes:
        model_name: The model of the calls that name none.
        llm_call_metrics: The model calls in order.
        final_metrics: Totals in the form of `FinalMetrics`; they are ignored when they are not.
    """

    model_name: str | None = None
    llm_call_metrics: list[CallReport] = Field(default_factory=list[CallReport])
    final_metrics: Any = None


class TrajectoryReport(_ReportModel):
    """What a trainer's answer to a callback tells of a rollout's model calls.

    Attributes:
        model_name: The model of the samples that name none.
        samples: The samples; the keys mean nothing.
    """

    model_name: str | None = None
    samples: dict[str, SampleReport] = Field(default_factory=dict[str, SampleReport])

    @classmethod
    def from_answer(cls, body: object, *, rollout_id: str) -> Self | None:
        """Read the report in an answer's parsed JSON body.

        Args:
            body: The answer, `{"trajectory": {...}}` where it has a report.
            rollout_id: The rollout, for the log.

        Returns:
            The report; None when the answer has none, or (with a warning) a malformed one.
        """
        report = cast("dict[Any, Any]", body).get("trajectory") if isinstance(body, dict) else None
        if report is None:
            return None
        try:
            return cls.model_validate(report)
        except ValidationError as error:
            places = {".".join(map(str, e["loc"][:1])) or "the report" for e in error.errors()}
            _log.warning(
                "The report on rollout %s is malformed (%s): it is ignored.",
                rollout_id,
                ", ".join(sorted(places)),
            )
            return None

    @property
    def only_sample(self) -> SampleReport:
        """The one sample that the report is about; an empty one when there is none, or several."""
        return next(iter(self.samples.values())) if len(self.samples) == 1 else SampleReport()


def lay_over(report: TrajectoryReport, agent_steps: list[JsonObject]) -> JsonObject:
    """Write the report's calls onto the steps that they made, if there is one call for each step.

    Args:
        report: The report.
        agent_steps: The steps that the policy made in this rollout; they are changed.

    Returns:
        What found no step, under its key in the document's `extra.osmosis`.
    """
    if len(report.samples) > 1:
        reports = {key: _plain(sample) for key, sample in report.samples.items()}
        return {"unmatched_sample_reports": clean_members(reports)}
    calls = [_plain(call) for call in report.only_sample.llm_call_metrics]
    if len(calls) != len(agent_steps):
        return {"unmatched_llm_call_metrics": calls} if calls else {}
    for step, call in zip(agent_steps, calls, strict=True):
        _overlay(step, call)
    return {}


def _overlay(step: JsonObject, call: JsonObject) -> None:
    if model_name := call.pop("model_name", None):
        step["model_name"] = model_name
    if (reported := normal_metrics(call)) is None:
        return
    own = step.get("metrics", {})
    extra = {**own.get("extra", {}), **reported.get("extra", {})}
    step["metrics"] = {**own, **reported} | ({"extra": extra} if extra else {})
    step["llm_call_count"] = 1


def final_metrics(
    report: TrajectoryReport,
    unmatched: JsonObject,
    agent_steps: list[JsonObject],
    *,
    rollout_id: str,
) -> JsonObject:
    """Return a document's totals without `total_steps`.

    They are the report's own; else sums over the reported calls that found no steps; else sums over
    the steps, which the other calls are part of. A sum is there when every entry has the figure.
    """
    if totals := _reported_totals(report.only_sample, rollout_id):
        return totals
    if calls := unmatched.get("unmatched_llm_call_metrics"):
        return _sums([normal_metrics(call) or {} for call in calls])
    return sums_of(agent_steps)


def sums_of(agent_steps: list[JsonObject]) -> JsonObject:
    """Return the sums over the steps, each where every step has the figure."""
    return _sums([step.get("metrics", {}) for step in agent_steps])


def _sums(entries: list[JsonObject]) -> JsonObject:
    sums = {total: _sum([entry.get(key) for entry in entries]) for total, key in _TOTALS.items()}
    return {total: value for total, value in sums.items() if value is not None}


def _reported_totals(sample: SampleReport, rollout_id: str) -> JsonObject | None:
    reported: Any = clean(sample.final_metrics)
    if isinstance(reported, dict):
        # The number of steps is for us to say, and unknown keys are nobody's mistake.
        known = FinalMetrics.model_fields.keys() - {"total_steps"}
        members = cast("JsonObject", reported)
        reported = {key: members[key] for key in members if key in known}
    try:
        totals = FinalMetrics.model_validate(reported) if reported is not None else FinalMetrics()
    except ValidationError:
        _log.warning("The totals reported on rollout %s are malformed: ignored.", rollout_id)
        return None
    return totals.model_dump(exclude_none=True)


def _sum(figures: list[Any]) -> int | float | None:
    if not figures or None in figures:
        return None
    total: int | float = sum(figures)
    return total if math.isfinite(total) and total <= MAX_INT else None


def _plain(model: BaseModel) -> JsonObject:
    return cast("JsonObject", clean(model.model_dump(exclude_none=True)))
