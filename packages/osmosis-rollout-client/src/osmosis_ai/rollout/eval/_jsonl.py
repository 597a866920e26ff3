"""JSON Lines, read as a stream: one object per line, and only `\\n` ends a line."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from osmosis_ai.rollout.eval._errors import DatasetError
from osmosis_ai.rollout.eval._json import JsonError, kind, parse_json

_BOM = b"\xef\xbb\xbf"


def jsonl_records(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the line numbers, counted from 1, and the objects of a file; blank lines are skipped.

    Raises:
        DatasetError: a line is not one strict JSON object in UTF-8, or the file cannot be read.
    """
    try:
        # A binary file is split at b"\n" alone, so U+2028 and its like stay data.
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                content = line.removeprefix(_BOM) if number == 1 else line
                if content.strip():
                    yield number, _object(path, number, content.rstrip(b"\r\n"))
    except OSError as error:
        raise DatasetError(path, f"cannot be read: {error.strerror or error}") from None


def _object(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        value = parse_json(line.decode())
    except UnicodeDecodeError as error:
        raise DatasetError(path, "not UTF-8", line=number, column=error.start + 1) from None
    except JsonError as error:
        raise DatasetError(path, error.problem, line=number, column=error.column) from None
    if not isinstance(value, dict):
        raise DatasetError(path, f"must be a JSON object, not {kind(value)}", line=number, column=1)
    return cast("dict[str, Any]", value)
