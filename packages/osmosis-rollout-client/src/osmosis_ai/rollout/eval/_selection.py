"""Which rows of a dataset are run."""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from osmosis_ai.rollout.eval._dataset import DatasetRow, scan_dataset
from osmosis_ai.rollout.eval._errors import DatasetError, EvalError


@dataclass(frozen=True, slots=True)
class RowSelection:
    """Rows by their indexes, counted from 0.

    Attributes:
        ranges: First and last index of each run of neighbours, ascending, without overlap.
    """

    ranges: tuple[tuple[int, int], ...]

    @classmethod
    def parse(cls, text: str) -> "RowSelection":
        """Read `3,7,10-20`.

        Raises:
            EvalError: it is no such list.
        """
        merged: list[tuple[int, int]] = []
        for first, last in sorted(_range(part.strip()) for part in text.split(",")):
            if merged and first <= merged[-1][1] + 1:
                first, last = merged[-1][0], max(last, merged.pop()[1])
            merged.append((first, last))
        return cls(tuple(merged))

    @property
    def last(self) -> int:
        """The highest index."""
        return self.ranges[-1][1]

    def __contains__(self, index: int) -> bool:
        position = bisect_right(self.ranges, index, key=lambda bounds: bounds[0]) - 1
        return position >= 0 and index <= self.ranges[position][1]

    def __str__(self) -> str:
        return ",".join(
            str(first) if first == last else f"{first}-{last}" for first, last in self.ranges
        )


def _range(part: str) -> tuple[int, int]:
    first, dash, last = (piece.strip() for piece in part.partition("-"))
    pieces = (first, last) if dash else (first, first)
    if all(piece.isascii() and piece.isdigit() for piece in pieces):
        low, high = map(int, pieces)
        if low <= high:
            return low, high
    msg = f"{part!r} selects no rows: write numbers from 0 on and ranges, such as 3,7,10-20"
    raise EvalError(msg)


def selected_rows(
    path: Path, selection: RowSelection | None, limit: int | None
) -> Iterator[DatasetRow]:
    """Yield the first `limit` of the selected rows; what is wrong with others does not matter.

    Raises:
        DatasetError: the file cannot be read, or a selected row cannot be used.
        EvalError: a selected row is not there; Parquet cannot be read here.
    """
    return islice(_selected(path, selection), limit)


def _selected(path: Path, selection: RowSelection | None) -> Iterator[DatasetRow]:
    index = -1
    for item in scan_dataset(path):
        index = _index(item)
        if selection and index > selection.last:
            return
        if selection is None or index in selection or index < 0:
            if isinstance(item, DatasetError):
                raise item
            yield item
    if selection and selection.last > index:
        raise DatasetError(path, f"has {index + 1} rows, so there is no row {selection.last}")


def _index(item: DatasetRow | DatasetError) -> int:
    if isinstance(item, DatasetRow):
        return item.index
    return -1 if item.row is None else item.row
