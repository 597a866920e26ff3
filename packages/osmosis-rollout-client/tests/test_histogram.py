"""Histograms: every value in one bar, between numbers that people read."""

from hypothesis import given
from hypothesis import strategies as st

from osmosis_ai.rollout.eval._histogram import Bar, histogram


def test_few_values_have_a_bar_each() -> None:
    """In their order."""
    assert histogram([1.0, 0.0, 1.0, 0.5]) == [Bar("0", 1), Bar("0.5", 1), Bar("1", 2)]
    assert histogram([]) == []


def test_many_values_lie_between_round_numbers() -> None:
    """0.3 begins a bar though it is a little less than three times 0.1, and 1 ends the last one."""
    bars = histogram([number / 10 for number in range(11)] + [0.05] * 4)
    assert [bar.label for bar in bars][:3] == ["0 to 0.1", "0.1 to 0.2", "0.2 to 0.3"]
    assert [bar.count for bar in bars] == [5, *[1] * 8, 2]
    assert [bar.label for bar in histogram([0.00193 + 0.0101 * n for n in range(40)])][-1] == (
        "0.35 to 0.4"
    )


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=40))
def test_every_value_is_counted_once(values: list[float]) -> None:
    """Whatever the rewards are, there are neither too many bars nor two alike."""
    bars = histogram(values)
    assert sum(bar.count for bar in bars) == len(values)
    assert len(bars) <= 12


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6), st.lists(st.floats(0, 1), min_size=12))
def test_every_value_lies_in_its_bar(low: float, span: float, shares: list[float]) -> None:
    """The bars' ends grow, and hold the least and the largest value."""
    values = [low + span * share for share in shares]
    bars = histogram(values)
    if len(set(values)) > 10 and max(values) - min(values) > 1e-3:
        ends = [list(map(float, bar.label.split(" to "))) for bar in bars]
        tolerance = 1e-5 * max(map(abs, values))
        assert ends[0][0] <= min(values) + tolerance
        assert ends[-1][1] >= max(values) - tolerance
        assert ends == sorted(ends)
