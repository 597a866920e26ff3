"""Numbers of a run, from its outcomes."""

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from osmosis_ai.rollout.eval._errors import RunError
from osmosis_ai.rollout.eval._outcomes import Outcome, OutcomeStatus, Place
from osmosis_ai.rollout.eval._statistics import Interval, distribution, interval, mean_of, pass_at_k

COUNTS = ("turns", "tool_calls", "tool_errors", "prompt_tokens", "completion_tokens")
PHASES = ("duration_sec", "queued_sec", "workflow_sec", "grading_sec")

type Passes = tuple[int, int]
"""Of one row: the graded attempts, and those of them that passed."""


@dataclass
class Group:
    """The outcomes of all attempts, or of those of one recorded model."""

    statuses: Counter[OutcomeStatus] = field(default_factory=Counter[OutcomeStatus])
    categories: Counter[str] = field(default_factory=Counter[str])
    origins: Counter[str] = field(default_factory=Counter[str])
    findings: Counter[str] = field(default_factory=Counter[str])
    rewards: list[float] = field(default_factory=list[float])
    numbers: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    passed: int = 0
    _rows: dict[int, Passes] = field(default_factory=dict[int, Passes])

    def add(self, outcome: Outcome) -> None:
        """Count one outcome."""
        self.statuses[outcome.status] += 1
        if outcome.status is OutcomeStatus.FAILURE:
            self.categories[outcome.err_category or "no result"] += 1
            self.origins[outcome.origin or "unknown"] += 1
        self.findings.update(finding["kind"] for finding in outcome.findings)
        if outcome.reward is not None:
            self.rewards.append(outcome.reward)
            self.passed += bool(outcome.passed)
            graded, passed = self._rows.get(outcome.row, (0, 0))
            self._rows[outcome.row] = graded + 1, passed + bool(outcome.passed)
        for name in (*COUNTS, *PHASES):
            value: float | None = getattr(outcome, name)
            if value is not None:
                self.numbers[name].append(value)

    @property
    def graded(self) -> int:
        """How many attempts have a reward."""
        return len(self.rewards)

    @property
    def pass_rate(self) -> float | None:
        """Passed attempts over graded ones; None when none was graded."""
        return self.passed / self.graded if self.graded else None

    @property
    def rows(self) -> list[Passes]:
        """The rows with a graded attempt."""
        return list(self._rows.values())

    def as_json(self) -> dict[str, Any]:
        """Return the numbers for `metrics.json`."""
        return {
            "total": self.statuses.total(),
            **{status.value: self.statuses[status] for status in OutcomeStatus},
            "failures_by_category": dict(sorted(self.categories.items())),
            "failures_by_origin": dict(sorted(self.origins.items())),
            "findings": dict(sorted(self.findings.items())),
            "graded": self.graded,
            "passed": self.passed,
            "pass_rate": self.pass_rate,
            "pass_rate_interval": interval(self.rows, _pass_rate),
            "reward": distribution(self.rewards),
            **{name: _with_total(self.numbers.get(name, [])) for name in COUNTS},
            **{name: distribution(self.numbers.get(name, [])) for name in PHASES},
        }


@dataclass
class Tally:
    """Everything that is counted in a run.

    Attributes:
        models: The recorded model of each attempt, or None where the attempts are alike.
        everything: All outcomes.
        by_model: The outcomes of each recorded model; empty where the attempts are alike.
    """

    models: Sequence[str | None]
    everything: Group = field(default_factory=Group)
    by_model: dict[str, Group] = field(default_factory=dict[str, Group])
    _places: set[Place] = field(default_factory=set[Place])

    @classmethod
    def of(cls, outcomes: Iterable[Outcome], models: Sequence[str | None]) -> Self:
        """Return the tally of these outcomes.

        Raises:
            RunError: one attempt at a row has several outcomes.
        """
        tally = cls(models, by_model={model: Group() for model in models if model})
        for outcome in outcomes:
            tally.add(outcome)
        return tally

    def add(self, outcome: Outcome) -> None:
        """Count one outcome.

        Raises:
            RunError: this attempt at this row has been counted already.
        """
        if outcome.place in self._places:
            row, attempt = outcome.place
            msg = f"attempt {attempt} at row {row} ended twice: the counts cannot be trusted"
            raise RunError(msg)
        self._places.add(outcome.place)
        self.everything.add(outcome)
        if outcome.model:
            self.by_model[outcome.model].add(outcome)

    def check(self, expected: int) -> None:
        """Make sure that every attempt at every row was counted.

        Raises:
            RunError: the counts do not add up to `expected`.
        """
        counted = self.everything.statuses.total()
        if counted != expected:
            msg = f"{counted} of {expected} rollouts were accounted for: the counts do not add up"
            raise RunError(msg)

    @property
    def pass_at_k(self) -> dict[int, float]:
        """Unbiased pass@k by k, over the rows with k graded attempts or more.

        Empty for a single attempt, and where the attempts are different models.
        """
        return {
            k: statistics.fmean(pass_at_k(*row, k) for row in rows)
            for k, rows in self._rows_by_k().items()
        }

    @property
    def pass_at_k_intervals(self) -> dict[int, Interval | None]:
        """95 % bootstrap intervals of `pass_at_k`, with rows as the units that are drawn."""
        return {
            k: interval([pass_at_k(*row, k) for row in rows], mean_of)
            for k, rows in self._rows_by_k().items()
        }

    def _rows_by_k(self) -> dict[int, list[Passes]]:
        if len(self.models) < 2 or self.by_model:
            return {}
        by_k = {
            k: [row for row in self.everything.rows if row[0] >= k]
            for k in range(1, len(self.models) + 1)
        }
        return {k: rows for k, rows in by_k.items() if rows}

    def as_json(self) -> dict[str, Any]:
        """Return the numbers for `metrics.json`."""
        return {
            **self.everything.as_json(),
            "pass_at_k": {str(k): value for k, value in self.pass_at_k.items()},
            "pass_at_k_intervals": {str(k): ends for k, ends in self.pass_at_k_intervals.items()},
            "by_model": {model: group.as_json() for model, group in self.by_model.items()},
        }


def _pass_rate(rows: Mapping[Passes, int]) -> float:
    graded = sum(count * row[0] for row, count in rows.items())
    return sum(count * row[1] for row, count in rows.items()) / graded


def _with_total(values: Sequence[float]) -> dict[str, float] | None:
    numbers = distribution(values)
    return numbers and {"total": sum(values)} | numbers
