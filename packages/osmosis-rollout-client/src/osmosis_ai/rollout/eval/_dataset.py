"""Datasets: the rows that an evaluation runs.

Columns, all others being ignored:

- `system_prompt` and `user_prompt` are text.
- `ground_truth`, or `label` where there is no `ground_truth`, is text, a number or a bool; numbers
  and bools become text as Python writes them: 0 is "0", false is "False".
- `metadata` is an object, or the JSON of one as text.

Null and blank text count as absent, also in `metadata`. A row with metadata needs nothing else; a
row without needs `user_prompt` and `ground_truth`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from osmosis_ai.rollout.eval._errors import DatasetError
from osmosis_ai.rollout.eval._json import JsonError, kind, parse_json
from osmosis_ai.rollout.eval._jsonl import jsonl_records
from osmosis_ai.rollout.types import Messages

type RecordReader = Callable[[Path], Iterator[tuple[int, dict[str, Any]]]]

_READERS: dict[str, RecordReader] = {".jsonl": jsonl_records}


@dataclass(frozen=True, slots=True)
class DatasetRow:
    """One row.

    Attributes:
        index: The row's place among the file's records, counted from 0.
        line: The line that it stands on, counted from 1.
        prompt: The messages that the workflow starts with.
        label: The reference answer, or None.
        metadata: The row's metadata, or None.
    """

    index: int
    line: int
    prompt: Messages
    label: str | None
    metadata: dict[str, Any] | None


def read_dataset(path: str | Path) -> Iterator[DatasetRow]:
    """Yield a dataset's rows as they are read.

    Args:
        path: A `.jsonl` file.

    Raises:
        DatasetError: the file cannot be read, has no rows, or a row cannot be used.
    """
    path = Path(path)
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        known = ", ".join(_READERS)
        raise DatasetError(path, f"a dataset's name must end in one of: {known}")
    index = -1
    for index, (line, record) in enumerate(reader(path)):
        yield _Record(path, line, record).row(index)
    if index < 0:
        raise DatasetError(path, "the file has no rows")


@dataclass(frozen=True, slots=True)
class _Record:
    path: Path
    line: int
    fields: dict[str, Any]

    def row(self, index: int) -> DatasetRow:
        metadata = self._metadata()
        system, user = self._text("system_prompt"), self._text("user_prompt")
        label = self._label()
        if metadata is None:
            self._need("user_prompt", user)
            self._need("ground_truth", label)
        turns = (("system", system), ("user", user))
        prompt: Messages = [{"role": role, "content": text} for role, text in turns if text]
        return DatasetRow(index, self.line, prompt, label, metadata)

    def _value(self, column: str) -> Any:
        value = self.fields.get(column)
        return None if isinstance(value, str) and not value.strip() else value

    def _text(self, column: str) -> str | None:
        value = self._value(column)
        if value is not None and not isinstance(value, str):
            problem = f"must be text, not {kind(value)}"
            raise self._error(problem, column)
        return value

    def _label(self) -> str | None:
        column = "label" if self._value("ground_truth") is None else "ground_truth"
        value = self._value(column)
        if isinstance(value, dict | list):
            problem = f"must be text, a number, true or false, not {kind(cast('object', value))}"
            raise self._error(problem, column)
        return None if value is None else str(value)

    def _metadata(self) -> dict[str, Any] | None:
        value = self._value("metadata")
        if isinstance(value, str):
            try:
                value = parse_json(value)
            except JsonError as error:
                problem = f"{error.problem}, at character {error.column} of the text"
                raise self._error(problem, "metadata") from None
            if not isinstance(value, dict):
                problem = f"must be the JSON of an object, not of {kind(value)}"
                raise self._error(problem, "metadata")
        elif value is not None and not isinstance(value, dict):
            problem = f"must be an object, or the JSON of one as text, not {kind(value)}"
            raise self._error(problem, "metadata")
        return cast("dict[str, Any] | None", value)

    def _need(self, column: str, value: str | None) -> None:
        if value is None:
            there = ", ".join(map(repr, self.fields)) or "none"
            problem = f"is missing or blank, and the row has no metadata; its columns are: {there}"
            raise self._error(problem, column)

    def _error(self, problem: str, column: str) -> DatasetError:
        return DatasetError(self.path, problem, line=self.line, column=column)
