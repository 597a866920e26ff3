"""The numbers of a run: what counts in which of them, and what must never be counted."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osmosis_ai.rollout.eval import Outcome, OutcomeStatus, RunError
from osmosis_ai.rollout.eval._metrics import Tally


def outcome(row: int, attempt: int = 1, reward: float | None = None, **more: Any) -> Outcome:
    """Return a success, or a failure where there is no reward."""
    status = OutcomeStatus.FAILURE if reward is None else OutcomeStatus.SUCCESS
    passed = None if reward is None else reward >= 1.0
    values: dict[str, Any] = {"status": status, "reward": reward, "passed": passed} | more
    return Outcome(row=row, attempt=attempt, rollout_id=f"r-{row}-{attempt}", **values)


@given(st.lists(st.sampled_from([None, 0.0, 0.5, 1.0, "cancelled", "skipped"]), max_size=30))
def test_every_outcome_counts_once(kinds: list[Any]) -> None:
    """As what it is; what failed is in no rate and no mean."""
    outcomes = [
        outcome(row, reward=kind)
        if not isinstance(kind, str)
        else outcome(row, status=OutcomeStatus(kind))
        for row, kind in enumerate(kinds)
    ]
    tally = Tally.of(outcomes, [None])
    tally.check(len(kinds))
    numbers = tally.as_json()
    rewards = [kind for kind in kinds if isinstance(kind, float)]
    assert numbers["total"] == sum(numbers[status.value] for status in OutcomeStatus) == len(kinds)
    assert numbers["failure"] == kinds.count(None) == sum(numbers["failures_by_origin"].values())
    assert (numbers["graded"], numbers["passed"]) == (len(rewards), rewards.count(1.0))
    mean = sum(rewards) / len(rewards) if rewards else None
    assert (numbers["reward"] or {"mean": None})["mean"] == (mean and pytest.approx(mean))


def test_counts_that_do_not_add_up_are_loud() -> None:
    """One that is missing, one too many, and one that ended twice."""
    tally = Tally.of([outcome(0), outcome(1)], [None])
    for expected in (1, 3):
        with pytest.raises(RunError, match="do not add up"):
            tally.check(expected)
    with pytest.raises(RunError, match="attempt 1 at row 1 ended twice"):
        tally.add(outcome(1))


def test_failures_are_listed_by_origin_and_category() -> None:
    """What nobody named is named so."""
    failures = [
        outcome(0, origin="infrastructure", err_category="internal_error"),
        outcome(1, origin="infrastructure"),
        outcome(2, origin="policy_endpoint", err_category="http_error"),
        outcome(3),
    ]
    numbers = Tally.of(failures, [None]).as_json()
    assert numbers["failures_by_origin"] == {
        "infrastructure": 2,
        "policy_endpoint": 1,
        "unknown": 1,
    }
    assert numbers["failures_by_category"] == {
        "http_error": 1,
        "internal_error": 1,
        "no result": 2,
    }
    assert (numbers["pass_rate"], numbers["pass_rate_interval"], numbers["reward"]) == (None,) * 3


def test_pass_at_k_is_over_the_rows_that_have_k_graded_attempts() -> None:
    """A failed attempt is no attempt that did not pass."""
    outcomes = [
        *(outcome(0, attempt, reward) for attempt, reward in ((1, 1.0), (2, 0.0), (3, None))),
        *(outcome(1, attempt, reward) for attempt, reward in ((1, 0.0), (2, 0.0), (3, 1.0))),
    ]
    estimates = Tally.of(outcomes, [None] * 3).pass_at_k
    assert estimates == {
        1: pytest.approx((1 / 2 + 1 / 3) / 2),
        2: pytest.approx((1 + 2 / 3) / 2),
        3: 1.0,
    }
