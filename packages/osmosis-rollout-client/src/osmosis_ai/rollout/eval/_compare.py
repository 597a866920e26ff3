"""Two runs side by side: the same rows, better or worse, and whether that is more than noise."""

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from osmosis_ai.rollout.eval._errors import EvalError
from osmosis_ai.rollout.eval._outcomes import Outcome
from osmosis_ai.rollout.eval._statistics import (
    Interval,
    chance_of_difference,
    interval,
    mean_of,
)

SIGNIFICANCE = 0.05
"""How likely chance alone may be at most, where a difference is called more than noise."""


@dataclass(frozen=True, slots=True)
class Difference:
    """How a number differs from one run to the other, over the rows that both have.

    Attributes:
        a: Its mean over the rows in the first run.
        b: Its mean over the same rows in the second.
        interval: The 95 % bootstrap interval of b - a.
        chance: How likely so large a difference is by chance alone, were there none.
    """

    a: float
    b: float
    interval: Interval
    chance: float

    @classmethod
    def of(cls, pairs: Sequence[tuple[float, float]]) -> "Difference":
        """Return the difference over pairs of numbers; there must be one at least."""
        differences = [after - before for before, after in pairs]
        return cls(
            statistics.fmean(before for before, _ in pairs),
            statistics.fmean(after for _, after in pairs),
            interval(differences, mean_of) or (0.0, 0.0),
            chance_of_difference(differences),
        )

    @property
    def is_more_than_noise(self) -> bool:
        """Whether chance alone hardly explains it."""
        return self.chance < SIGNIFICANCE

    def as_json(self) -> dict[str, Any]:
        """Return it for machines."""
        return {
            "a": self.a,
            "b": self.b,
            "difference": self.b - self.a,
            "interval": self.interval,
            "p_value": self.chance,
            "more_than_noise": self.is_more_than_noise,
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs, paired row by row.

    Attributes:
        better: The rows with a higher pass rate in the second run.
        worse: Those with a lower one.
        same: How many have the same one.
        unpaired: How many rows only one run has graded, or has with other content.
        pass_rate: The rows' pass rates.
        reward: The rows' mean rewards.
    """

    better: list[int]
    worse: list[int]
    same: int
    unpaired: int
    pass_rate: Difference
    reward: Difference

    def as_json(self) -> dict[str, Any]:
        """Return it for machines."""
        return {
            "better": self.better,
            "worse": self.worse,
            "same": self.same,
            "unpaired": self.unpaired,
            "pass_rate": self.pass_rate.as_json(),
            "reward": self.reward.as_json(),
        }


@dataclass(frozen=True, slots=True)
class _Row:
    digest: str
    pass_rate: float
    reward: float


def compare(a: Iterable[Outcome], b: Iterable[Outcome]) -> Comparison:
    """Compare two runs over the rows that both have graded.

    Raises:
        EvalError: there is no such row.
    """
    before, after = _rows(a), _rows(b)
    paired = [
        row
        for row in sorted(before.keys() & after.keys())
        if before[row].digest == after[row].digest
    ]
    if not paired:
        msg = "the runs have no graded row in common: were they made on the same dataset?"
        raise EvalError(msg)
    rates = [(before[row].pass_rate, after[row].pass_rate) for row in paired]
    changes = [(row, new - old) for row, (old, new) in zip(paired, rates, strict=True)]
    return Comparison(
        better=[row for row, change in changes if change > 0],
        worse=[row for row, change in changes if change < 0],
        same=sum(change == 0 for _, change in changes),
        unpaired=len(before.keys() | after.keys()) - len(paired),
        pass_rate=Difference.of(rates),
        reward=Difference.of([(before[row].reward, after[row].reward) for row in paired]),
    )


def _rows(outcomes: Iterable[Outcome]) -> dict[int, _Row]:
    graded: dict[int, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        if outcome.reward is not None:
            graded[outcome.row].append(outcome)
    return {
        row: _Row(
            attempts[0].row_digest,
            statistics.fmean(bool(attempt.passed) for attempt in attempts),
            statistics.fmean(attempt.reward or 0.0 for attempt in attempts),
        )
        for row, attempts in graded.items()
    }
