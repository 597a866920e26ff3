"""Copies of foreign values that strict JSON can hold (RFC 8259: finite numbers, UTF-8 text)."""

import math
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, Literal, cast

from pydantic import BaseModel

from osmosis_ai.rollout.types.numbers import is_number, plain_number

# Encoders recurse (orjson stops at 254 levels), so a deeper value is cut here rather than there.
MAX_DEPTH: Final = 200

type OnBad = Literal["drop", "replace"]


class _Dropped:
    """Marks a value that has no place in the copy."""


_DROPPED: Final = _Dropped()


class _Cleaner:
    """Copies values; what JSON cannot hold is counted, and dropped or replaced where it stood."""

    def __init__(self, on_bad: OnBad) -> None:
        self.on_bad = on_bad
        self.bad = 0
        self._open: set[int] = set()

    def clean(self, value: object) -> Any:
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, Enum):
            return self.clean(value.value)
        if is_number(value):
            return self._number(value)
        if isinstance(value, BaseModel):
            value = value.model_dump()
        if isinstance(value, Mapping | list | tuple):
            return self._container(cast("Mapping[Any, Any] | list[Any] | tuple[Any, ...]", value))
        return self._bad(value)

    def _text(self, value: str) -> str:
        try:
            value.encode()
        except UnicodeEncodeError:
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return value if type(value) is str else str.__str__(value)

    def _number(self, value: object) -> Any:
        number = _finite(value)
        return self._bad(value) if number is None else number

    def _container(self, value: Mapping[Any, Any] | list[Any] | tuple[Any, ...]) -> Any:
        if id(value) in self._open or len(self._open) >= MAX_DEPTH:
            return self._bad(value)
        self._open.add(id(value))
        try:
            if isinstance(value, Mapping):
                return self._object(value)
            cleaned = [self.clean(item) for item in value]
            return [item for item in cleaned if item is not _DROPPED]
        finally:
            self._open.discard(id(value))

    def _object(self, value: Mapping[Any, Any]) -> dict[str, Any]:
        copy: dict[str, Any] = {}
        for key, item in value.items():
            name = self._key(key)
            if name is None:
                self.bad += 1
            elif (cleaned := self.clean(item)) is not _DROPPED:
                copy[name] = cleaned
        return copy

    def _key(self, key: object) -> str | None:
        if isinstance(key, str):
            return self._text(key)
        if key is None or isinstance(key, bool):
            return {None: "null", True: "true", False: "false"}[key]
        if is_number(key):
            number = _finite(key)
            return None if number is None else str(number)
        return None

    def _bad(self, value: object) -> Any:
        self.bad += 1
        if self.on_bad == "drop":
            return _DROPPED
        if isinstance(value, float):
            return None
        if isinstance(value, bytes | bytearray | memoryview):
            size = value.nbytes if isinstance(value, memoryview) else len(value)
            return f"<{size} bytes>"
        return f"<{type(value).__name__}>"


def _finite(value: object) -> int | float | None:
    try:
        number = plain_number(value)
        # An integer that is infinite as a float is what 1e999 is to many readers.
        return number if math.isfinite(number) else None
    except (ValueError, OverflowError):
        return None


def json_safe[T](value: T, *, on_bad: OnBad) -> tuple[T, int]:
    """Copy `value` into what strict JSON can hold.

    Foreign numbers become int or float, tuples lists, pydantic models objects, numeric keys text;
    lone surrogates become U+FFFD. Non-finite numbers, values of other types, cycles and what lies
    deeper than `MAX_DEPTH` levels are dropped, or replaced by null (numbers) or a short note.

    Returns:
        The copy, and how many values were dropped or replaced.
    """
    cleaner = _Cleaner(on_bad)
    copy = cleaner.clean(value)
    return cast("T", copy), cleaner.bad
