"""Plain JSON as bytes, piece by piece.

A large document encoded in one go would be in memory twice, and would keep every other thread of
the process waiting for the interpreter meanwhile.
"""

import gzip
import re
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Any, BinaryIO, Final, cast

import orjson

from osmosis_ai.rollout.trajectory._numbers import Numbers

# People do not read larger documents in an editor, and indents would make up much of them.
_LARGEST_INDENTED: Final = 1 << 20
_BATCH: Final = 1 << 16
# Most of what compression gains; the rest would take several times as long.
_COMPRESSION_LEVEL: Final = 1
# A line break is never part of a JSON string, so nothing inside of a string can match.
_NUMBER_LIST: Final = re.compile(rb'\[\n\s+([^\[\]{}"]+?)\n\s*\]')


def encode(value: Any) -> Iterator[bytes]:
    """Encode cleaned JSON: indented, lists of plain numbers on one line; compact when it is large.

    Yields:
        The bytes in pieces, at least one.

    Raises:
        UnprovenError: something in it was taken for `Numbers` and is none.
    """
    small = encode_small(value)
    yield from encode_large(value) if small is None else (small,)


def encode_small(value: Any) -> bytes | None:
    """Encode cleaned JSON, indented, in one piece, or return None when it is large.

    Raises:
        UnprovenError: something in it was taken for `Numbers` and is none.
    """
    # Held on to for the second time, the pieces would cost more than making them again.
    return None if _is_large(_pieces(value)) else _indented(value)


def encode_large(value: Any) -> Iterator[bytes]:
    """Encode cleaned JSON, compact, in pieces.

    Raises:
        UnprovenError: something in it was taken for `Numbers` and is none.
    """
    return _batches(_pieces(value))


def write_compressed(pieces: Iterable[bytes], file: BinaryIO) -> None:
    """Write pieces of a document to a file, compressed with gzip (RFC 1952)."""
    # Without a time or a name, so that the same document gives the same bytes.
    with gzip.GzipFile("", "wb", _COMPRESSION_LEVEL, file, mtime=0) as compressed:
        for piece in pieces:
            compressed.write(piece)


def _pieces(value: Any) -> Iterator[bytes]:
    """Yield compact JSON, the lists of an object and of its documents element by element."""
    if not isinstance(value, dict):
        yield _compact(value)
        return
    separator = b"{"
    for key, member in cast("dict[str, Any]", value).items():
        yield separator + orjson.dumps(key) + b":"
        separator = b","
        if isinstance(member, list):
            yield from _elements(cast("list[Any]", member), nested=key == "subagent_trajectories")
        else:
            yield _compact(member)
    yield b"}" if value else b"{}"


def _elements(values: list[Any], *, nested: bool) -> Iterator[bytes]:
    yield b"["
    for index, value in enumerate(values):
        if index:
            yield b","
        if nested:
            yield from _pieces(value)
        else:
            yield _compact(value)
    yield b"]"


def _is_large(pieces: Iterable[bytes]) -> bool:
    return any(size > _LARGEST_INDENTED for size in accumulate(map(len, pieces)))


def _batches(pieces: Iterable[bytes]) -> Iterator[bytes]:
    batch: list[bytes] = []
    size = 0
    for piece in pieces:
        batch.append(piece)
        size += len(piece)
        if size >= _BATCH:
            yield b"".join(batch)
            batch, size = [], 0
    yield b"".join(batch)


def _compact(value: Any) -> bytes:
    return orjson.dumps(value, _bare)


def _bare(value: Any) -> orjson.Fragment:
    return orjson.Fragment(_numbers(value).json())


def _indented(value: Any) -> bytes:
    option = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
    indented = orjson.dumps(value, _spaced, option)
    return _NUMBER_LIST.sub(lambda found: b"[%b]" % b" ".join(found[1].split()), indented)


def _spaced(value: Any) -> orjson.Fragment:
    return orjson.Fragment(_numbers(value).json().replace(b",", b", "))


def _numbers(value: Any) -> Numbers:
    if isinstance(value, Numbers):
        return value
    msg = f"{type(value).__name__} is no part of cleaned JSON"
    raise TypeError(msg)
