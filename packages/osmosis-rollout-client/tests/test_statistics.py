"""Estimates, intervals, and the chance that a difference is noise."""

import itertools
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from osmosis_ai.rollout.eval import pass_at_k
from osmosis_ai.rollout.eval._statistics import (
    chance_of_difference,
    distribution,
    interval,
    mean_of,
)


@given(st.lists(st.booleans(), min_size=1, max_size=8), st.data())
def test_pass_at_k_is_the_share_of_choices_with_a_pass(
    passed: list[bool], data: st.DataObject
) -> None:
    """That is what it estimates: choose any k of the attempts, and look for one that passed."""
    k = data.draw(st.integers(1, len(passed)))
    choices = list(itertools.combinations(passed, k))
    share = sum(any(choice) for choice in choices) / len(choices)
    assert pass_at_k(len(passed), sum(passed), k) == pytest.approx(share)


@pytest.mark.parametrize(("attempts", "passed", "k"), [(4, 5, 1), (4, -1, 1), (4, 1, 5), (4, 1, 0)])
def test_pass_at_k_refuses_what_cannot_be(attempts: int, passed: int, k: int) -> None:
    """Nonsense is an error rather than a number."""
    with pytest.raises(ValueError, match="1 <= k <= attempts"):
        pass_at_k(attempts, passed, k)


@given(st.lists(st.sampled_from([-1.0, 0.0, 1.0]), max_size=12))
def test_the_chance_is_the_share_of_signs_that_do_as_much(differences: list[float]) -> None:
    """Exactly, where all differences have one size: over all choices of signs."""
    signs = list(itertools.product((-1, 1), repeat=len(differences)))
    sums = [
        abs(sum(sign * value for sign, value in zip(choice, differences, strict=True)))
        for choice in signs
    ]
    share = sum(total >= abs(sum(differences)) for total in sums) / len(signs)
    assert chance_of_difference(differences) == pytest.approx(share)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.sampled_from([-1.0, -0.25, 0.5, 0.75, 0.0]), min_size=1, max_size=9))
def test_the_chance_is_close_where_it_is_drawn(differences: list[float]) -> None:
    """Differences of several sizes are judged by random signs: close to all of them."""
    signs = list(itertools.product((-1, 1), repeat=len(differences)))
    sums = [
        abs(sum(sign * value for sign, value in zip(choice, differences, strict=True)))
        for choice in signs
    ]
    share = sum(total >= abs(sum(differences)) - 1e-9 for total in sums) / len(signs)
    assert chance_of_difference(differences) == pytest.approx(share, abs=0.03)


def test_known_chances() -> None:
    """McNemar's exact test on 12 rows that differ, 10 of them for the better; and huge counts."""
    assert chance_of_difference([1.0] * 10 + [-1.0] * 2 + [0.0] * 50) == pytest.approx(158 / 4096)
    assert chance_of_difference([]) == 1.0
    assert chance_of_difference([1.0] * 100_000) == 0.0
    assert chance_of_difference([1.0, -1.0] * 50_000) == 1.0


def test_intervals_hold_what_they_promise() -> None:
    """Of samples from a known distribution, about 95 % have its mean in their interval."""
    draw = random.Random(1)
    held = 0
    for _ in range(200):
        rows = [float(draw.random() < 0.3) for _ in range(80)]
        low, high = interval(rows, mean_of) or (1.0, 0.0)
        held += low <= 0.3 <= high
    assert 180 <= held <= 198


def test_intervals_are_the_same_each_time() -> None:
    """The draws have a fixed seed, and many rows cost no more than few."""
    rows = [0.0] * 400_000 + [1.0] * 600_000
    ends = interval(rows, mean_of)
    assert ends == interval(rows, mean_of)
    assert ends is not None
    width = ends[1] - ends[0]
    assert width == pytest.approx(2 * 1.96 * math.sqrt(0.24 / 1e6), rel=0.15)
    assert interval(list[float](), mean_of) is None
    assert interval([0.5] * 7, mean_of) == (0.5, 0.5)


def test_distributions() -> None:
    """Quantiles are interpolated; a single value is all of them."""
    numbers = distribution([float(value) for value in range(101)])
    assert numbers is not None
    names = ("mean", "min", "p05", "p25", "p50", "p75", "p95", "max")
    assert [numbers[name] for name in names] == [50, 0, 5, 25, 50, 75, 95, 100]
    assert distribution([2.0]) == dict.fromkeys(numbers, 2.0) | {"std": 0.0}
    assert distribution([]) is None


def test_intervals_agree_with_a_bootstrap_of_rows() -> None:
    """pass@2 of 40 rows, against rows drawn one by one, as textbooks do it."""
    draw = random.Random(3)
    rows = [(4, sum(draw.random() < 0.35 for _ in range(4))) for _ in range(40)]
    values = [pass_at_k(*row, 2) for row in rows]
    means = sorted(sum(draw.choices(values, k=40)) / 40 for _ in range(20_000))
    low, high = interval(values, mean_of) or (0.0, 0.0)
    assert low == pytest.approx(means[500], abs=0.015)
    assert high == pytest.approx(means[19_500], abs=0.015)
