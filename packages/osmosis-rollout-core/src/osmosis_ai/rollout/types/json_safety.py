"""Copies of foreign values that strict JSON can hold (RFC 8259: finite numbers, UTF-8 text)."""

import math
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, Final, Literal, cast

from pydantic import BaseModel

from osmosis_ai.rollout.types.numbers import is_number, plain_number, python_scalar

# Encoders recurse (orjson stops at 254 levels), so a deeper value is cut here rather than there.
MAX_DEPTH: Final = 200

type OnBad = Literal["drop", "replace"]


class _Dropped:
    """Marks a value that has no place in the copy."""


_DROPPED: Final = _Dropped()

# Nearly every value is of one of these very types, which need no closer look.
_PLAIN: Final = {dict, list}
_NUMBERS: Final = {int, float}
_PLAIN_RANGE: Final = 2**63
_KEY_WORDS: Final = {None: "null", True: "true", False: "false"}


class _Cleaner:
    """Copies values; what JSON cannot hold is counted, and dropped or replaced where it stood."""

    def __init__(self, on_bad: OnBad) -> None:
        self.on_bad = on_bad
        self.bad = 0
        self._open: set[int] = set()

    def clean(self, value: object) -> Any:
        kind = type(value)
        if kind is str:
            return clean_text(cast(str, value))
        if kind in _NUMBERS and -_PLAIN_RANGE < cast(float, value) < _PLAIN_RANGE:
            return value
        if kind is bool or value is None:
            return value
        try:
            return self._container(value, value) if kind in _PLAIN else self._foreign(value)
        except Exception:  # a foreign object's own code may raise anything
            return self._bad(value)

    def _foreign(self, value: object) -> Any:
        if isinstance(value, str):
            return clean_text(value)
        if isinstance(value, Enum):
            return self.clean(value.value)
        if is_number(value):
            return self._number(value)
        if isinstance(value, BaseModel):
            return self._container(value, _fields(value))
        return self._container(value, value) if _is_container(value) else self._bad(value)

    def _number(self, value: object) -> Any:
        if isinstance(scalar := python_scalar(value), bool):
            return scalar
        number = plain_number(scalar)
        return number if math.isfinite(number) else self._bad(value)

    def _container(self, value: object, content: object) -> Any:
        if id(value) in self._open or len(self._open) >= MAX_DEPTH:
            return self._bad(value)
        self._open.add(id(value))
        try:
            if isinstance(content, Mapping):
                return self._object(cast("Mapping[object, object]", content))
            items = map(self.clean, list(cast("Iterable[object]", content)))
            return [item for item in items if item is not _DROPPED]
        finally:
            self._open.discard(id(value))

    def _object(self, content: Mapping[object, object]) -> dict[str, Any]:
        copy: dict[str, Any] = {}
        for key, item in list(content.items()):
            name = key if type(key) is str and key.isascii() else _key(key)
            if name is None:
                self.bad += 1
            elif (cleaned := self.clean(item)) is not _DROPPED:
                copy[name] = cleaned
        return copy

    def _bad(self, value: object) -> Any:
        self.bad += 1
        if self.on_bad == "drop":
            return _DROPPED
        return _note(value)


def clean_text(value: str) -> str:
    """Return `value` as a plain str in which U+FFFD stands for every lone surrogate."""
    value = str.__str__(value)  # a subclass may bring its own methods
    if value.isascii():
        return value
    try:
        value.encode()
    except UnicodeEncodeError:
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return value


def _key(key: object) -> str | None:
    try:
        if isinstance(key, str):
            return clean_text(key)
        if key is None or isinstance(key, bool):
            return _KEY_WORDS[key]
        number = plain_number(key)
        return str(number) if math.isfinite(number) else None
    except Exception:  # no number, or a foreign one whose own code raises
        return None


def _fields(model: BaseModel) -> Mapping[str, Any]:
    try:
        return model.model_dump()
    except Exception:  # one field that cannot be dumped must not take the others with it
        return dict(model)


def _is_container(value: object) -> bool:
    return isinstance(value, Mapping | Sequence) and not isinstance(
        value, bytes | bytearray | memoryview | range
    )


def _note(value: object) -> str | None:
    kind = type(value)
    if issubclass(kind, bytes | bytearray | memoryview):
        return f"<{memoryview(cast(bytes, value)).nbytes} bytes>"
    try:
        return None if is_number(value) else f"<{kind.__name__}>"
    except Exception:  # a foreign object's own code may raise anything
        return f"<{kind.__name__}>"


def json_safe[T](value: T, *, on_bad: OnBad) -> tuple[T, int]:
    """Copy `value` into what strict JSON can hold; whatever it is, nothing is raised.

    Foreign numbers become int or float, pydantic models and mappings objects, sequences arrays,
    enum members their values, and keys that are numbers text; lone surrogates become U+FFFD.
    Numbers that are not finite or too large for a float, values of other types, cycles and what
    lies deeper than `MAX_DEPTH` levels are dropped, or replaced by null (numbers) or a short note.

    Returns:
        The copy, and how many values were dropped or replaced. A `value` that is bad as a whole
        becomes null.
    """
    cleaner = _Cleaner(on_bad)
    copy = cleaner.clean(value)
    return cast("T", None if copy is _DROPPED else copy), cleaner.bad
