"""What stops an evaluation."""

from pathlib import Path


class EvalError(Exception):
    """The evaluation cannot be done; the message says why."""


class RunError(EvalError):
    """The run's outcomes could not be kept, or do not add up: its numbers must not be used."""


class DatasetError(EvalError):
    """A dataset holds something that cannot be used.

    Attributes:
        path: The file.
        row: The row, counted from 0 as in a run's results, or None when the whole file is meant.
        line: The line, counted from 1, or None when the whole file is meant or has no lines.
        column: The column by name, or the place in the line, counted from 1; None when the whole
            row is meant.
        problem: What is wrong, and what to do about it.
    """

    def __init__(
        self,
        path: Path,
        problem: str,
        *,
        row: int | None = None,
        line: int | None = None,
        column: int | str | None = None,
    ) -> None:
        where = [str(path)]
        if row is not None:
            where.append(f"row {row}")
        if line is not None:
            where.append(f"line {line}")
        if column is not None:
            where.append(f"column {column!r}")
        super().__init__(f"{', '.join(where)}: {problem}")
        self.path = path
        self.row = row
        self.line = line
        self.column = column
        self.problem = problem
