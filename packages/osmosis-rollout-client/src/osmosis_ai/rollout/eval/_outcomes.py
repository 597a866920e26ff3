"""What is run, and how each of it ends."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import Any, Self

from osmosis_ai.rollout.eval._dataset import DatasetRow

type Place = tuple[int, int]
"""A row's index and an attempt's number: what has exactly one outcome in a run."""


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

    @property
    def place(self) -> Place:
        """Which outcome it leads to."""
        return self.row.index, self.attempt.number


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a job ended; a line of `index.jsonl`.

    Attributes:
        row: The row's index, counted from 0.
        line: The line of the dataset that it starts on, or None where it has no lines.
        row_digest: Tells rows apart by their content, across runs too.
        attempt: The attempt's number, counted from 1.
        model: The recorded model that answered, if one did.
        rollout_id: The rollout's id.
        status: How it ended.
        reward: The reward of a success that was graded, else None.
        passed: Whether that reward reached the threshold; None without a reward.
        err_message: What went wrong, if something did.
        err_category: What kind of failure it was, in the server's terms.
        origin: Where the failure came from, in the server's terms; `run` when it was the run's
            own end.
        duration_sec: From the request to the result, in seconds; None for what never started.
        queued_sec: The part of it before the workflow began, or None when that was not told.
        workflow_sec: The part of it in the workflow, likewise.
        grading_sec: The part of it in the grader, likewise.
        turns: Assistant turns in the sample, or None without a sample.
        tool_calls: Tool calls in the sample, likewise.
        tool_errors: Those of them that were answered with an error, likewise.
        prompt_tokens: Tokens that the policy read, all calls together; None when not told.
        completion_tokens: Tokens that the policy wrote, likewise.
        policy: What the policy reported of the rollout, or None.
    """

    row: int
    line: int | None = None
    row_digest: str = ""
    attempt: int
    model: str | None = None
    rollout_id: str
    status: OutcomeStatus
    reward: float | None = None
    passed: bool | None = None
    err_message: str | None = None
    err_category: str | None = None
    origin: str | None = None
    duration_sec: float | None = None
    queued_sec: float | None = None
    workflow_sec: float | None = None
    grading_sec: float | None = None
    turns: int | None = None
    tool_calls: int | None = None
    tool_errors: int | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    policy: dict[str, Any] | None = None

    @classmethod
    def of(cls, job: Job, status: OutcomeStatus, **more: Any) -> Self:
        """Return the outcome of a job; `more` are the other attributes."""
        return cls(
            row=job.row.index,
            line=job.row.line,
            row_digest=row_digest(job.row),
            attempt=job.attempt.number,
            model=job.attempt.model,
            rollout_id=job.rollout_id,
            status=status,
            **more,
        )

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Return the outcome that `as_json` gave; what later versions added is left out.

        Raises:
            TypeError, KeyError, ValueError: it is none.
        """
        known = {field.name for field in fields(cls)}
        values: dict[str, Any] = {name: item for name, item in value.items() if name in known}
        values["status"] = OutcomeStatus(values["status"])
        return cls(**values)

    @property
    def place(self) -> Place:
        """Which outcome of the run this is."""
        return self.row, self.attempt

    @property
    def findings(self) -> list[dict[str, Any]]:
        """What the policy gateway found: each with its `kind`, and in words as its `message`."""
        found: list[dict[str, Any]] = (self.policy or {}).get("findings", [])
        return found

    def as_json(self) -> dict[str, Any]:
        """Return it for a line of JSON."""
        return asdict(self)


def row_digest(row: DatasetRow) -> str:
    """Return 16 hexadecimal digits that are the same for rows with the same content only."""
    content = json.dumps([row.prompt, row.label, row.metadata], sort_keys=True).encode()
    return hashlib.sha256(content).hexdigest()[:16]


def jobs_of(rows: Iterable[DatasetRow], attempts: list[Attempt], *, run_id: str) -> Iterator[Job]:
    """Yield every attempt at every row; the ids of a run's rollouts start with `run_id`."""
    for row in rows:
        for attempt in attempts:
            yield Job(row, attempt, f"{run_id}-{row.index:06d}-{attempt.number}")
