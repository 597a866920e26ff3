"""Two runs row by row, and whether their difference is more than noise."""

import random

import pytest

from osmosis_ai.rollout.eval import EvalError, Outcome, OutcomeStatus
from osmosis_ai.rollout.eval._compare import compare


def outcome(row: int, attempt: int, reward: float | None, digest: str = "") -> Outcome:
    return Outcome(
        row=row,
        attempt=attempt,
        rollout_id=f"r-{row}-{attempt}",
        row_digest=digest,
        status=OutcomeStatus.FAILURE if reward is None else OutcomeStatus.SUCCESS,
        reward=reward,
        passed=None if reward is None else reward >= 1.0,
    )


def drawn(chances: list[float], draw: random.Random) -> list[Outcome]:
    """Return two attempts at each row, which pass with the row's chance."""
    return [
        outcome(row, attempt, float(draw.random() < chance))
        for row, chance in enumerate(chances)
        for attempt in (1, 2)
    ]


def test_noise_is_hardly_ever_called_more() -> None:
    """Of 100 pairs of runs that differ by chance alone, about five in a hundred at most."""
    draw = random.Random(5)
    called = 0
    for _ in range(100):
        chances = [draw.random() for _ in range(40)]
        comparison = compare(drawn(chances, draw), drawn(chances, draw))
        called += comparison.pass_rate.is_more_than_noise
    assert called <= 11


def test_a_true_difference_is_found() -> None:
    """A policy that is better by 30 points on 100 rows is called better every time."""
    draw = random.Random(6)
    for _ in range(10):
        chances = [draw.random() * 0.7 for _ in range(100)]
        better = drawn([chance + 0.3 for chance in chances], draw)
        difference = compare(drawn(chances, draw), better).pass_rate
        assert difference.is_more_than_noise
        assert difference.interval[0] > 0


def test_rows_are_paired_by_what_they_hold() -> None:
    """Rows that one run failed on, has alone, or has with other content, stand apart."""
    a = [outcome(0, 1, 1.0, "a"), outcome(1, 1, 0.0, "b"), outcome(2, 1, None, "c")]
    a += [outcome(3, 1, 1.0, "d"), outcome(4, 1, 0.5, "e")]
    b = [outcome(0, 1, 0.0, "a"), outcome(1, 1, 1.0, "b"), outcome(2, 1, 1.0, "c")]
    b += [outcome(3, 1, 1.0, "other"), outcome(4, 1, 0.75, "e")]
    comparison = compare(a, b)
    assert (comparison.worse, comparison.better, comparison.same) == ([0], [1], 1)
    assert comparison.unpaired == 2
    assert (comparison.reward.a, comparison.reward.b) == (0.5, pytest.approx(1.75 / 3))


def test_runs_with_nothing_in_common() -> None:
    """That is told rather than compared."""
    with pytest.raises(EvalError, match="no graded row in common"):
        compare([outcome(0, 1, 1.0)], [outcome(1, 1, 1.0)])
