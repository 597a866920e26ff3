"""Histograms of rewards and durations."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

_BARS = 10
_STEPS = (1, 2, 5, 10)
# Beyond these, floats cannot tell the edges of bars apart, or have no room for them.
_NARROWEST = 1e-9
_TINIEST, _LARGEST = 1e-300, 1e300


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar.

    Attributes:
        label: The value, or the range of values, that it stands for.
        count: How many values that is.
    """

    label: str
    count: int


def histogram(values: Sequence[float]) -> list[Bar]:
    """Return the bars of some finite values: one per value where these are few, else ranges.

    There are about ten ranges, between round numbers. Each holds its lower end, and the last one
    its upper end too.
    """
    counts = Counter(values)
    if len(counts) <= _BARS:
        return [Bar(f"{value:g}", counts[value]) for value in sorted(counts)]
    low, high = min(counts), max(counts)
    span, size = high / 2 - low / 2, max(abs(low), abs(high))
    if size > _LARGEST or span < max(_NARROWEST * size, _TINIEST):
        return [Bar(f"{low:g} to {high:g}", counts.total())]
    step = _round_step(2 * span / _BARS)
    first, last = _place(low, step), -_place(-high, step) - 1
    bars: Counter[int] = Counter()
    for value, count in counts.items():
        bars[min(_place(value, step), last)] += count
    return [
        Bar(f"{step * place:g} to {step * (place + 1):g}", bars[place])
        for place in range(first, last + 1)
    ]


def _round_step(least: float) -> float:
    """Return the smallest of 1, 2 and 5, times a power of ten, that is at least so large."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(step * power for step in _STEPS if step * power >= least or step == _STEPS[-1])


def _place(value: float, step: float) -> int:
    # 0.3 / 0.1 is a little less than 3, and belongs to the bar that begins with 0.3.
    return math.floor(round(value / step, 6))
