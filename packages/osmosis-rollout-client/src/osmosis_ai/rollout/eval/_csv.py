"""CSV with a header, read strictly and as a stream."""

import csv
import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import BinaryIO

from osmosis_ai.rollout.eval._errors import DatasetError
from osmosis_ai.rollout.eval._records import COLUMNS, Record, fault_of_header

# One cell may well hold a document; a quote that is never closed must not swallow the whole file.
_MAX_CELL_CHARS = 1 << 26
_NAN = re.compile("[+-]?nan", re.IGNORECASE)


def csv_records(path: Path) -> Iterator[Record | DatasetError]:
    """Yield the rows below the header, and an error for each that does not fit it.

    Cells are text. A cell that is nothing but `NaN` is an error in the columns that are used:
    programs write it for what is missing. Blank lines are skipped.

    Raises:
        OSError: the file cannot be read.
    """
    indexes = count()
    with path.open("rb") as file:
        numbered = _numbered(file)
        line, header = next(numbered, (1, list[str]()))
        if isinstance(header, csv.Error):
            yield DatasetError(path, f"not CSV ({header})", line=line)
            return
        if header and (fault := fault_of_header(path, header)):
            yield fault
            return
        for line, cells in numbered:
            if isinstance(cells, csv.Error):
                yield DatasetError(path, f"not CSV ({cells})", row=next(indexes), line=line)
            elif cells:
                yield _record(path, next(indexes), line, header, cells)


def _numbered(file: BinaryIO) -> Iterator[tuple[int, list[str] | csv.Error]]:
    """Yield each record, or why it cannot be read, with the line that it starts on."""
    csv.field_size_limit(_MAX_CELL_CHARS)
    reader = csv.reader(_lines(file), strict=True)
    while True:
        line = reader.line_num + 1
        try:
            yield line, next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield line, error


def _lines(file: BinaryIO) -> Iterator[str]:
    # What is not UTF-8 comes through as half characters, which `_cell_fault` then finds.
    for number, line in enumerate(file):
        yield line.decode("utf-8-sig" if number == 0 else "utf-8", "surrogateescape")


def _record(
    path: Path, index: int, line: int, header: list[str], cells: list[str]
) -> Record | DatasetError:
    if len(cells) != len(header):
        counts = f"has {len(cells)} cells, and the header {len(header)}"
        return DatasetError(path, counts, row=index, line=line)
    for column, cell in zip(header, cells, strict=True):
        problem = _cell_fault(column, cell)
        if problem:
            return DatasetError(path, problem, row=index, line=line, column=column)
    return Record(index, line, dict(zip(header, cells, strict=True)))


def _cell_fault(column: str, cell: str) -> str | None:
    if column in COLUMNS and _NAN.fullmatch(cell.strip()):
        return "NaN is what programs write for a missing value: leave the cell empty"
    if not cell.isascii():
        try:
            cell.encode()
        except UnicodeEncodeError:
            return "not UTF-8"
    return None
