"""Records: the rows of a file before anyone asks what their columns mean."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from osmosis_ai.rollout.eval._errors import DatasetError

SYSTEM, USER, TRUTH, LABEL, METADATA = COLUMNS = (
    "system_prompt",
    "user_prompt",
    "ground_truth",
    "label",
    "metadata",
)
"""The columns that mean something in a dataset; readers may leave out all others."""


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a file.

    Attributes:
        index: Its place among the file's records, counted from 0; those that cannot be read count.
        line: The line that it starts on, counted from 1, or None where a file has no lines.
        fields: Its values by column.
    """

    index: int
    line: int | None
    fields: dict[str, Any]


type RecordReader = Callable[[Path], Iterator[Record | DatasetError]]
"""Reads a file as a stream: each record, or what is wrong with it, or with the whole file."""


def fault_of_header(path: Path, header: list[str]) -> DatasetError | None:
    """Return what is wrong with the names of a file's columns, if something is."""
    repeated = sorted({repr(name) for name in header if header.count(name) > 1})
    if repeated:
        return DatasetError(path, f"a column comes twice: {', '.join(repeated)}")
    if not set(header) & set(COLUMNS):
        there = ", ".join(map(repr, header)) or "none"
        problem = f"has none of the columns {', '.join(COLUMNS)}; its columns are: {there}"
        return DatasetError(path, problem)
    return None
