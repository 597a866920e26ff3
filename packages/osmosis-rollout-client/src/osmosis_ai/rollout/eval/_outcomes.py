"""What is run, and how each of it ends."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from osmosis_ai.rollout.eval._dataset import DatasetRow


class OutcomeStatus(StrEnum):
    """How one attempt at one row ended: always in exactly one of these."""

    SUCCESS = "success"
    FAILURE = "failure"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One of the tries that every row gets.

    Attributes:
        number: Counted from 1.
        model: The recorded model that answers, or None where the attempts are alike.
    """

    number: int
    model: str | None


@dataclass(frozen=True, slots=True)
class Job:
    """One attempt at one row."""

    row: DatasetRow
    attempt: Attempt
    rollout_id: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a job ended; a line of `results.jsonl`.

    Attributes:
        row: The row's index, counted from 0.
        line: The line of the dataset that it stands on.
        attempt: The attempt's number, counted from 1.
        model: The recorded model that answered, if one did.
        rollout_id: The rollout's id.
        status: How it ended.
        reward: The reward of a success that was graded, else None.
        passed: Whether that reward reached the threshold; None without a reward.
        err_message: What went wrong, if something did.
        err_category: What kind of failure it was, in the server's terms.
        duration_sec: From the request to the result, in seconds; None for what never started.
        policy: What the policy reported of the rollout, or None.
    """

    row: int
    line: int
    attempt: int
    model: str | None
    rollout_id: str
    status: OutcomeStatus
    reward: float | None = None
    passed: bool | None = None
    err_message: str | None = None
    err_category: str | None = None
    duration_sec: float | None = None
    policy: dict[str, Any] | None = None

    @classmethod
    def without_result(
        cls,
        job: Job,
        status: OutcomeStatus,
        err_message: str,
        *,
        duration_sec: float | None = None,
    ) -> "Outcome":
        """Return the outcome of a job that the server told no result of."""
        return cls(
            row=job.row.index,
            line=job.row.line,
            attempt=job.attempt.number,
            model=job.attempt.model,
            rollout_id=job.rollout_id,
            status=status,
            err_message=err_message,
            duration_sec=duration_sec,
        )


def jobs_of(rows: Iterable[DatasetRow], attempts: list[Attempt], *, run_id: str) -> Iterator[Job]:
    """Yield every attempt at every row; the ids of a run's rollouts start with `run_id`."""
    for row in rows:
        for attempt in attempts:
            yield Job(row, attempt, f"{run_id}-{row.index:06d}-{attempt.number}")
