"""Numbers of a run, gathered as its outcomes come."""

import math
import statistics
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from osmosis_ai.rollout.eval._errors import RunError
from osmosis_ai.rollout.eval._outcomes import Attempt, Outcome, OutcomeStatus


def pass_at_k(attempts: int, passed: int, k: int) -> float:
    """Return the chance that at least one of `k` attempts passes, estimated without bias.

    That is 1 - C(n - c, k) / C(n, k) for n attempts of which c passed (Chen et al., 2021,
    arXiv:2107.03374).

    Raises:
        ValueError: not 1 <= k <= attempts, or not 0 <= passed <= attempts.
    """
    if not (1 <= k <= attempts and 0 <= passed <= attempts):
        msg = f"pass@{k} needs 1 <= k <= attempts and 0 <= passed <= attempts"
        raise ValueError(msg)
    return 1.0 - math.comb(attempts - passed, k) / math.comb(attempts, k)


@dataclass
class Group:
    """The outcomes of all attempts, or of those of one recorded model."""

    statuses: Counter[OutcomeStatus] = field(default_factory=Counter[OutcomeStatus])
    failures: Counter[str] = field(default_factory=Counter[str])
    rewards: list[float] = field(default_factory=list[float])
    durations: list[float] = field(default_factory=list[float])
    passed: int = 0

    def add(self, outcome: Outcome) -> None:
        """Count one outcome."""
        self.statuses[outcome.status] += 1
        if outcome.status is OutcomeStatus.FAILURE:
            self.failures[outcome.err_category or "no result"] += 1
        if outcome.reward is not None:
            self.rewards.append(outcome.reward)
            self.passed += bool(outcome.passed)
        if outcome.duration_sec is not None:
            self.durations.append(outcome.duration_sec)

    @property
    def graded(self) -> int:
        """How many attempts have a reward."""
        return len(self.rewards)

    @property
    def pass_rate(self) -> float | None:
        """Passed attempts over graded ones; None when none was graded."""
        return self.passed / self.graded if self.graded else None

    def as_json(self) -> dict[str, Any]:
        """Return the numbers for `metrics.json`."""
        return {
            "total": self.statuses.total(),
            **{status.value: self.statuses[status] for status in OutcomeStatus},
            "failures_by_category": dict(sorted(self.failures.items())),
            "graded": self.graded,
            "passed": self.passed,
            "pass_rate": self.pass_rate,
            "reward": _distribution(self.rewards),
            "duration_sec": _distribution(self.durations),
        }


@dataclass
class Tally:
    """Everything that is counted in a run.

    Attributes:
        attempts: The attempts that every row gets.
        everything: All outcomes.
        by_model: The outcomes of each recorded model; empty where the attempts are alike.
    """

    attempts: list[Attempt]
    everything: Group = field(default_factory=Group)
    by_model: dict[str, Group] = field(default_factory=dict[str, Group])
    _graded: Counter[int] = field(default_factory=Counter[int])
    _passed: Counter[int] = field(default_factory=Counter[int])
    _seen: set[str] = field(default_factory=set[str])

    def __post_init__(self) -> None:
        self.by_model = {attempt.model: Group() for attempt in self.attempts if attempt.model}

    def add(self, outcome: Outcome) -> None:
        """Count one outcome.

        Raises:
            RunError: the rollout has been counted already.
        """
        if outcome.rollout_id in self._seen:
            msg = f"rollout {outcome.rollout_id} ended twice: the run's counts cannot be trusted"
            raise RunError(msg)
        self._seen.add(outcome.rollout_id)
        self.everything.add(outcome)
        if outcome.model:
            self.by_model[outcome.model].add(outcome)
        if outcome.passed is not None:
            self._graded[outcome.row] += 1
            self._passed[outcome.row] += outcome.passed

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
        if len(self.attempts) < 2 or self.by_model:
            return {}
        estimates: dict[int, float] = {}
        for k in range(1, len(self.attempts) + 1):
            rows = [row for row, graded in self._graded.items() if graded >= k]
            if rows:
                estimates[k] = statistics.fmean(
                    pass_at_k(self._graded[row], self._passed[row], k) for row in rows
                )
        return estimates

    def as_json(self) -> dict[str, Any]:
        """Return the numbers for `metrics.json`."""
        return {
            **self.everything.as_json(),
            "pass_at_k": {str(k): value for k, value in self.pass_at_k.items()},
            "by_model": {model: group.as_json() for model, group in self.by_model.items()},
        }


def _distribution(values: list[float]) -> dict[str, float] | None:
    if not values:
        return None
    quantiles = statistics.quantiles(values, n=4, method="inclusive") if values[1:] else values * 3
    return {
        "mean": float(statistics.mean(values)),
        "std": statistics.pstdev(values),
        "min": min(values),
        "p25": quantiles[0],
        "p50": quantiles[1],
        "p75": quantiles[2],
        "max": max(values),
    }
