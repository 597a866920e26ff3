"""Datasets: the rows that an evaluation runs.

Columns, all others being ignored:

- `system_prompt` and `user_prompt` are text.
- `ground_truth`, or `label` where there is no `ground_truth`, is text, a number or a bool; numbers
  and bools become text as Python writes them: 0 is "0", false is "False".
- `metadata` is an object, or the JSON of one as text.

Null and blank text count as absent, also in `metadata`. A row with metadata needs nothing else; a
row without needs `user_prompt` and `ground_truth`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from osmosis_ai.rollout.eval._csv import csv_records
from osmosis_ai.rollout.eval._errors import DatasetError
from osmosis_ai.rollout.eval._json import JsonError, kind, parse_json
from osmosis_ai.rollout.eval._jsonl import jsonl_records
from osmosis_ai.rollout.eval._parquet import parquet_records
from osmosis_ai.rollout.eval._records import (
    LABEL,
    METADATA,
    SYSTEM,
    TRUTH,
    USER,
    Record,
    RecordReader,
)
from osmosis_ai.rollout.types import Messages

_READERS: dict[str, RecordReader] = {
    ".jsonl": jsonl_records,
    ".csv": csv_records,
    ".parquet": parquet_records,
}


@dataclass(frozen=True, slots=True)
class DatasetRow:
    """One row.

    Attributes:
        index: The row's place among the file's records, counted from 0.
        line: The line that it starts on, counted from 1, or None where a file has no lines.
        prompt: The messages that the workflow starts with.
        label: The reference answer, or None.
        metadata: The row's metadata, or None.
    """

    index: int
    line: int | None
    prompt: Messages
    label: str | None
    metadata: dict[str, Any] | None


def read_dataset(path: str | Path) -> Iterator[DatasetRow]:
    """Yield a dataset's rows as they are read.

    Args:
        path: A `.jsonl`, `.csv` or `.parquet` file.

    Raises:
        DatasetError: the file cannot be read, has no rows, or a row cannot be used.
        EvalError: the file is Parquet, and pyarrow is not installed.
    """
    for item in scan_dataset(path):
        if isinstance(item, DatasetError):
            raise item
        yield item


def scan_dataset(path: str | Path) -> Iterator[DatasetRow | DatasetError]:
    """Yield a dataset's rows as they are read, and everything that is wrong with it.

    Args:
        path: A `.jsonl`, `.csv` or `.parquet` file.

    Raises:
        EvalError: the file is Parquet, and pyarrow is not installed.
    """
    path = Path(path)
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        known = ", ".join(_READERS)
        yield DatasetError(path, f"a dataset's name must end in one of: {known}")
        return
    empty = True
    try:
        for record in reader(path):
            empty = False
            if isinstance(record, DatasetError):
                yield record
            else:
                yield from _Columns(path, record).read()
    except OSError as error:
        yield DatasetError(path, f"cannot be read: {error.strerror or error}")
    else:
        if empty:
            yield DatasetError(path, "the file has no rows")


@dataclass(frozen=True, slots=True)
class _Columns:
    """A record's columns, and what is wrong with them."""

    path: Path
    record: Record
    faults: list[DatasetError] = field(default_factory=list[DatasetError])

    def read(self) -> Iterator[DatasetRow | DatasetError]:
        metadata = self._metadata()
        system, user = self._text(SYSTEM), self._text(USER)
        label = self._label()
        if self._value(METADATA) is None:
            self._need(USER)
            self._need(TRUTH, LABEL)
        if self.faults:
            yield from self.faults
            return
        turns = (("system", system), ("user", user))
        prompt: Messages = [{"role": role, "content": text} for role, text in turns if text]
        yield DatasetRow(self.record.index, self.record.line, prompt, label, metadata)

    def _value(self, column: str) -> Any:
        value = self.record.fields.get(column)
        return None if isinstance(value, str) and not value.strip() else value

    def _text(self, column: str) -> str | None:
        value = self._value(column)
        if value is None or isinstance(value, str):
            return value
        self._fault(column, f"must be text, not {kind(value)}")
        return None

    def _label(self) -> str | None:
        column = LABEL if self._value(TRUTH) is None else TRUTH
        value = self._value(column)
        if isinstance(value, dict | list):
            there = kind(cast("object", value))
            self._fault(column, f"must be text, a number, true or false, not {there}")
            return None
        return None if value is None else str(value)

    def _metadata(self) -> dict[str, Any] | None:
        value = self._value(METADATA)
        of = ""
        if isinstance(value, str):
            try:
                value = parse_json(value)
            except JsonError as error:
                where = f"at character {error.column} of the text"
                self._fault(METADATA, f"{error.problem}, {where}")
                return None
            of = " the JSON of"
        elif value is None:
            return None
        if isinstance(value, dict):
            return cast("dict[str, Any]", value)
        problem = f"must be an object, or the JSON of one as text, not{of} {kind(value)}"
        self._fault(METADATA, problem)
        return None

    def _need(self, *columns: str) -> None:
        if all(self._value(column) is None for column in columns):
            there = ", ".join(map(repr, self.record.fields)) or "none"
            problem = f"is missing or blank, and the row has no metadata; its columns are: {there}"
            self._fault(columns[0], problem)

    def _fault(self, column: str, problem: str) -> None:
        row, line = self.record.index, self.record.line
        self.faults.append(DatasetError(self.path, problem, row=row, line=line, column=column))
