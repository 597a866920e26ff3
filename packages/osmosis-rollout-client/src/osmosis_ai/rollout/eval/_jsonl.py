"""JSON Lines, read as a stream: one object per line, and only `\\n` ends a line."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, cast

from osmosis_ai.rollout.eval._errors import DatasetError
from osmosis_ai.rollout.eval._json import JsonError, kind, parse_json
from osmosis_ai.rollout.eval._records import Record

_BOM = b"\xef\xbb\xbf"


def jsonl_records(path: Path) -> Iterator[Record | DatasetError]:
    """Yield the objects of a file, and an error for each line that is no strict JSON object.

    Blank lines are skipped.

    Raises:
        OSError: the file cannot be read.
    """
    indexes = count()
    # A binary file is split at b"\n" alone, so U+2028 and its like stay data.
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            content = line.removeprefix(_BOM) if number == 1 else line
            if content.strip():
                yield _record(path, next(indexes), number, content.rstrip(b"\r\n"))


def _record(path: Path, index: int, number: int, line: bytes) -> Record | DatasetError:
    try:
        value = parse_json(line.decode())
    except UnicodeDecodeError as error:
        problem, column = "not UTF-8", error.start + 1
    except JsonError as error:
        problem, column = error.problem, error.column
    else:
        if isinstance(value, dict):
            return Record(index, number, cast("dict[str, Any]", value))
        problem, column = f"must be a JSON object, not {kind(value)}", 1
    return DatasetError(path, problem, row=index, line=number, column=column)
