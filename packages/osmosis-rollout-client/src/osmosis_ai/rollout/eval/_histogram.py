"""Histograms of rewards and durations."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

_BINS = 10


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
    """Return the bars of some values: one per value where these are few, else ten ranges.

    A range holds its lower end; the last one holds its upper end too.
    """
    counts = Counter(values)
    if len(counts) <= _BINS:
        return [Bar(f"{value:g}", counts[value]) for value in sorted(counts)]
    low, high = min(counts), max(counts)
    width = (high - low) / _BINS
    bins: Counter[int] = Counter()
    for value, count in counts.items():
        bins[min(int((value - low) / width), _BINS - 1)] += count
    return [
        Bar(f"{low + width * place:.3g}..{low + width * (place + 1):.3g}", bins[place])
        for place in range(_BINS)
    ]
