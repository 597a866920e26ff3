"""Ids that become one name in a path."""

import unicodedata
from typing import Annotated

from pydantic import AfterValidator

MAX_SEGMENT_BYTES = 255
RESERVED_PREFIX = ".server"


def check_path_segment(value: str) -> str:
    """Return `value` if it can be the name of one directory entry, whatever the caller does.

    `%2e`, `C:x` and `~` are ordinary names: nothing here decodes or expands them.

    Raises:
        ValueError: the value is empty, `.` or `..`, holds a separator or a control character,
            is no valid UTF-8, is longer than 255 bytes or has the server's own prefix. The message
            does not repeat the value.
    """
    if problem := _segment_problem(value):
        msg = f"must be one plain path segment: {problem}"
        raise ValueError(msg)
    return value


def _segment_problem(value: str) -> str | None:
    if not value:
        return "it is empty"
    if value in {".", ".."}:
        return "it is a relative directory"
    if "/" in value or "\\" in value:
        return "it holds a path separator"
    if not value.isprintable() and any(unicodedata.category(char) == "Cc" for char in value):
        return "it holds a control character"
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        return "it holds a lone surrogate"
    if size > MAX_SEGMENT_BYTES:
        return f"it is longer than {MAX_SEGMENT_BYTES} bytes"
    if value.startswith(RESERVED_PREFIX):
        return f"names that start with {RESERVED_PREFIX} are the server's own"
    return None


PathSegment = Annotated[str, AfterValidator(check_path_segment)]
"""Text that passes `check_path_segment`."""
