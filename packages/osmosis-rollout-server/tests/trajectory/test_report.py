"""What a trainer reports of its calls, and what becomes of it."""

import logging
from typing import Any

import pytest
from chats import convert

from osmosis_ai.rollout.trajectory import Trajectory, TrajectoryReport

USER = {"role": "user", "content": "2+2?"}
ANSWER = {"role": "assistant", "content": "4"}


def report_of(*calls: Any, **sample: Any) -> TrajectoryReport:
    """Read a report with one sample from a callback's answer."""
    entry = {"llm_call_metrics": list(calls), **sample}
    answer = {"trajectory": {"samples": {"any": entry}}}
    report = TrajectoryReport.from_answer(answer, rollout_id="r-1")
    assert report is not None
    return report


def totals_of(trajectory: Trajectory) -> dict[str, Any]:
    assert trajectory.final_metrics is not None
    return trajectory.final_metrics.model_dump(exclude_none=True)


def osmosis(trajectory: Trajectory) -> dict[str, Any]:
    assert trajectory.extra is not None
    return trajectory.extra["osmosis"]


def test_calls_are_laid_over_the_steps_that_they_made() -> None:
    """Reported fields win one by one; what only the step knows stays."""
    own = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    reported = {
        "prompt_tokens": 10,
        "cost_usd": 0.5,
        "prompt_token_ids": [1],
        "model_name": "policy-7",
        "extra": {"a": 1},
        "surprise": 1,
    }
    trajectory = convert(USER, {**ANSWER, "usage": own}, ANSWER, report=report_of(reported, {}))
    _, first, second = trajectory.steps
    assert first.metrics is not None
    assert first.metrics.model_dump(exclude_none=True) == {
        "prompt_tokens": 10,
        "completion_tokens": 2,
        "cost_usd": 0.5,
        "prompt_token_ids": [1],
        "extra": {"total_tokens": 3, "a": 1},
    }
    assert (first.model_name, first.llm_call_count) == ("policy-7", 1)
    assert (second.metrics, second.llm_call_count) == (None, None)


@pytest.mark.parametrize(("calls", "turns"), [(3, 5), (5, 3), (1, 0)])
def test_b55_calls_and_steps_that_do_not_match(calls: int, turns: int) -> None:
    """Nothing is guessed: the figures are kept aside, and still count in the totals."""
    report = report_of(*[{"prompt_tokens": 4, "completion_tokens": 1}] * calls)
    trajectory = convert(USER, *[{**ANSWER, "usage": {"prompt_tokens": 1}}] * turns, report=report)
    assert all(s.metrics and s.metrics.prompt_tokens == 1 for s in trajectory.steps[1:])
    assert len(osmosis(trajectory)["unmatched_llm_call_metrics"]) == calls
    assert totals_of(trajectory) == {
        "total_prompt_tokens": 4 * calls,
        "total_completion_tokens": calls,
        "total_steps": turns + 1,
    }


PROMPT = [
    {"role": "system", "content": "Be brief."},
    USER,
    {**ANSWER, "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": '{"a": 1}'}}]},
    {"role": "tool", "tool_call_id": "a", "content": "4"},
    {"role": "user", "content": "3+3?"},
]
RESPELLED = [
    {"role": "developer", "content": "Added by the framework."},
    {"role": "user", "content": [{"type": "text", "text": "2+2?"}]},
    {
        **ANSWER,
        "usage": {"prompt_tokens": 99},
        "tool_calls": [{"id": "b", "function": {"name": "f", "arguments": {"a": 1}}}],
    },
    {"role": "tool", "tool_call_id": "b", "content": "4", "name": "f"},
    {"role": "user", "content": "3+3?"},
]


@pytest.mark.parametrize("leading", [PROMPT, RESPELLED], ids=["as sent", "respelled"])
def test_b55_turns_of_the_prompt_never_receive_metrics(leading: list[dict[str, Any]]) -> None:
    """A replayed turn belongs to another call: neither its usage nor the report's is counted."""
    report = report_of({"prompt_tokens": 4})
    trajectory = convert(*leading, ANSWER, report=report, initial_messages=PROMPT)
    replayed, own = [step for step in trajectory.steps if step.source == "agent"]
    assert (replayed.metrics, replayed.llm_call_count) == (None, None)
    assert own.metrics is not None
    assert own.metrics.prompt_tokens == 4
    assert totals_of(trajectory)["total_prompt_tokens"] == 4


def test_a_changed_prompt_turn_counts_as_the_policys() -> None:
    """Only leading messages that say the same came in with the request."""
    history = [USER, {**ANSWER, "content": "5", "usage": {"prompt_tokens": 3}}]
    trajectory = convert(*history, initial_messages=[USER, ANSWER])
    assert totals_of(trajectory)["total_prompt_tokens"] == 3


def test_several_samples_are_kept_aside() -> None:
    """Which of them is meant cannot be known."""
    sample = {"llm_call_metrics": [{"prompt_tokens": 5}], "model_name": "m"}
    answer = {"trajectory": {"model_name": "top", "samples": {"a": sample, "b": sample}}}
    report = TrajectoryReport.from_answer(answer, rollout_id="r-1")
    trajectory = convert(USER, ANSWER, report=report)
    assert osmosis(trajectory)["unmatched_sample_reports"] == {"a": sample, "b": sample}
    assert trajectory.steps[1].metrics is None
    assert trajectory.agent.model_name == "top"


@pytest.mark.parametrize(
    ("top", "sample", "expected"), [("t", "s", "s"), ("t", None, "t"), ("", "", None)]
)
def test_the_agents_model(top: str, sample: str | None, expected: str | None) -> None:
    """The sample's model comes before the report's; without either there is none."""
    answer = {"trajectory": {"model_name": top, "samples": {"any": {"model_name": sample}}}}
    report = TrajectoryReport.from_answer(answer, rollout_id="r-1")
    trajectory = convert(USER, report=report)
    assert trajectory.agent.model_name == expected


def test_totals_of_the_report() -> None:
    """Valid totals are taken as they are, but for the number of steps."""
    final = {"total_prompt_tokens": 50, "total_cost_usd": 1, "total_steps": -9, "surprise": 1}
    trajectory = convert(USER, ANSWER, report=report_of({"prompt_tokens": 4}, final_metrics=final))
    assert totals_of(trajectory) == {
        "total_prompt_tokens": 50,
        "total_cost_usd": 1.0,
        "total_steps": 2,
    }


@pytest.mark.parametrize("final", [{"total_prompt_tokens": "many"}, [1], "x", {}])
def test_malformed_totals_are_summed_up_instead(
    final: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """They lead to a warning at most, which names the rollout and no value."""
    trajectory = convert(USER, ANSWER, report=report_of({"prompt_tokens": 4}, final_metrics=final))
    assert totals_of(trajectory) == {"total_prompt_tokens": 4, "total_steps": 2}
    assert all("r-1" in r.message and "many" not in r.message for r in caplog.records)


def test_sums_need_every_entry() -> None:
    """A sum over half of the calls would be a lie."""
    first = {**ANSWER, "usage": {"prompt_tokens": 1, "completion_tokens": 0, "cost": 0.1}}
    second = {**ANSWER, "usage": {"prompt_tokens": 2, "cost": 0.2}}
    assert totals_of(convert(first, second)) == {
        "total_prompt_tokens": 3,
        "total_cost_usd": pytest.approx(0.3),
        "total_steps": 2,
    }
    assert totals_of(convert(first, second, ANSWER)) == {"total_steps": 3}


@pytest.mark.parametrize("body", [None, [], "text", {}, {"trajectory": None}, {"other": 1}])
def test_answers_without_a_report(body: Any, caplog: pytest.LogCaptureFixture) -> None:
    """They are nothing special."""
    assert TrajectoryReport.from_answer(body, rollout_id="r-1") is None
    assert not caplog.records


@pytest.mark.parametrize(
    "report",
    [
        "text",
        {"samples": ["sek-ret"]},
        {"model_name": {"sek": "ret"}},
        {"samples": {"sek-ret": {"llm_call_metrics": [{"prompt_tokens": "sek-ret"}]}}},
    ],
)
def test_malformed_reports_lead_to_a_warning(report: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The warning names the rollout and never what was sent."""
    with caplog.at_level(logging.WARNING):
        assert TrajectoryReport.from_answer({"trajectory": report}, rollout_id="r-1") is None
    (record,) = caplog.records
    assert "r-1" in record.getMessage()
    assert "sek" not in record.getMessage()


def test_logprobs_with_a_hole_go_whole_to_extra() -> None:
    """As for a message's own: readers refuse nulls in the field."""
    trajectory = convert(ANSWER, report=report_of({"logprobs": [None, -0.5]}))
    metrics = trajectory.steps[0].metrics
    assert metrics is not None
    assert (metrics.logprobs, metrics.extra) == (None, {"logprobs": [None, -0.5]})
