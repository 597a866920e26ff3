"""Copies of foreign values that every JSON reader can load, for the archive alone.

Unlike core's `json_safe`, which trims what goes over the wire, these copies keep as text whatever
JSON has no form for: an archive is read by people too.
"""

import dataclasses
import datetime
import json
import math
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from enum import Enum
from numbers import Integral
from pathlib import PurePath
from typing import Any, Final, TypeGuard, cast
from uuid import UUID

import orjson
from pydantic import BaseModel

from osmosis_ai.rollout.types.json_safety import clean_text
from osmosis_ai.rollout.types.numbers import is_number, plain_number

type JsonObject = dict[str, Any]
"""A JSON object whose values are JSON values."""

# Readers recurse and give up somewhere; a document has up to ten levels above a copied value.
MAX_DEPTH: Final = 100
_ORJSON_DEPTH: Final = 254
# What orjson and most other readers hold in an integer.
MIN_INT: Final = -(2**63)
MAX_INT: Final = 2**64 - 1

_MOMENTS = (datetime.datetime, datetime.date, datetime.time)


def size_note(size: int, kind: str = "", path: str = "") -> str:
    """Return what stands in a document for `size` bytes: `<12 bytes>`, `<image/png, 12 bytes>`.

    With a path it says where they are: `<application/pdf, 12 bytes: a.pdf>`.
    """
    return f"<{kind}{', ' if kind else ''}{size} bytes{': ' if path else ''}{path}>"


def _note_of(data: bytes) -> str:
    return size_note(len(data))


def clean(value: object, note: Callable[[bytes], str] = _note_of) -> Any:
    """Copy `value`, whatever it is, into plain JSON types.

    Foreign numbers become int or float, tuples and sets lists, pydantic models and dataclasses
    objects, dates and paths text. NaN and infinities become null, integers beyond 64 bits their
    digits, lone surrogates U+FFFD, bytes a `note` (of their size), and what lies deeper than
    `MAX_DEPTH` levels its JSON text. Objects of other types and cycles become a note of their type.
    """
    if isinstance(value, str):
        return clean_text(value)
    if (numbers := _plain_numbers(value)) is not None:
        return numbers
    try:
        # Nearly all values are JSON already, and there and back is the fastest copy of them.
        data = orjson.dumps(value, option=orjson.OPT_PASSTHROUGH_DATACLASS)
        if nesting_bound(data) > MAX_DEPTH:
            _refuse_deep(value)
        return orjson.loads(data)
    except orjson.JSONEncodeError:
        return _Cleaner(note).clean(value)


def nesting_bound(json_text: bytes | str) -> int:
    """Return a number of levels that a JSON text has at most, for little more than reading it."""
    if isinstance(json_text, str):
        return json_text.count("[") + json_text.count("{")
    return json_text.count(b"[") + json_text.count(b"{")


def _refuse_deep(value: object) -> None:
    for _ in range(_ORJSON_DEPTH - MAX_DEPTH):
        value = [value]
    orjson.dumps(value, option=orjson.OPT_PASSTHROUGH_DATACLASS)


def clean_members(members: Mapping[Any, Any]) -> JsonObject:
    """Copy an object member by member, so that the oddity of one does not slow down the others."""
    copy: JsonObject = {}
    for key, value in members.items():
        if not isinstance(key, str):
            return cast("JsonObject", _Cleaner().clean(members))
        copy[clean_text(key)] = clean_text(value) if type(value) is str else clean(value)
    return copy


def compact_json(value: object) -> str:
    """Return the compact JSON text of a copy of `value` (see `clean`)."""
    return orjson.dumps(clean(value)).decode()


def text_of(value: object) -> str:
    """Return a value that is text in a cleaned copy as it is there, others as compact JSON."""
    cleaned = clean(value)
    return cleaned if isinstance(cleaned, str) else orjson.dumps(cleaned).decode()


def as_object(value: object) -> JsonObject | None:
    """Return `value` if it is an object of a cleaned copy."""
    return cast("JsonObject", value) if isinstance(value, dict) else None


def as_list(value: object) -> list[Any] | None:
    """Return `value` if it is a list of a cleaned copy."""
    return cast("list[Any]", value) if isinstance(value, list) else None


def is_figure(value: object) -> TypeGuard[int | float]:
    """Tell whether a value of a cleaned copy is a number (true and false are not)."""
    return type(value) is int or type(value) is float


def present(**fields: object) -> JsonObject:
    """Return the fields that are not None, in the order given."""
    return {name: value for name, value in fields.items() if value is not None}


class _Cleaner:
    """One copy in the making; it knows the containers that it is inside of."""

    def __init__(self, note: Callable[[bytes], str] = _note_of) -> None:
        self._note = note
        self._open: set[int] = set()

    def clean(self, value: object) -> Any:
        if isinstance(value, Enum):
            value = value.value
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return clean_text(value)
        if (numbers := _plain_numbers(value)) is not None:
            return numbers
        try:
            return self._converted(value)
        except Exception:  # a foreign object's own code may raise anything; the rest is unharmed
            return _type_note(value)

    def _converted(self, value: object) -> Any:
        if isinstance(value, Mapping | list | tuple | AbstractSet):
            return self._container(cast("Mapping[Any, Any] | list[Any]", value))
        if is_number(value):
            return _clean_number(value)
        return self._foreign(value)

    def _container(self, value: Mapping[Any, Any] | list[Any] | tuple[Any, ...] | set[Any]) -> Any:
        if id(value) in self._open:
            return _type_note(value)
        if len(self._open) >= MAX_DEPTH:
            return _deep_text(value)
        self._open.add(id(value))
        try:
            if isinstance(value, Mapping):
                return self._object(value)
            if isinstance(value, list | tuple):
                return [self.clean(item) for item in value]
            # A set has no order of its own; a document should not change from run to run.
            return sorted(map(self.clean, value), key=compact_json)
        finally:
            self._open.discard(id(value))

    def _object(self, value: Mapping[Any, Any]) -> JsonObject:
        copy: JsonObject = {}
        for key, item in value.items():
            name = clean_text(key) if isinstance(key, str) else text_of(key)
            while name in copy:
                name += "_"
            copy[name] = self.clean(item)
        return copy

    def _foreign(self, value: object) -> Any:
        if isinstance(value, BaseModel):
            return self.clean(value.model_dump())
        if isinstance(value, bytes | bytearray):
            return self._note(bytes(value))
        if isinstance(value, memoryview):
            return self._note(value.tobytes())
        if isinstance(value, _MOMENTS):
            return value.isoformat()
        if isinstance(value, PurePath | UUID):
            return clean_text(str(value))
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return self.clean({f.name: getattr(value, f.name) for f in dataclasses.fields(value)})
        if hasattr(value, "dtype") and hasattr(value, "tolist"):
            return self.clean(cast("Any", value).tolist())
        return _type_note(value)


def _clean_number(value: object) -> Any:
    if isinstance(value, Integral):
        return _clean_int(int(value))
    try:
        number = plain_number(value)
    except ValueError:  # a Decimal or Fraction beyond any float
        return clean_text(str(value))
    if isinstance(number, int):
        return _clean_int(number)
    return number if math.isfinite(number) else None


def _clean_int(number: int) -> int | str:
    if MIN_INT <= number <= MAX_INT:
        return number
    try:
        return str(number)
    except ValueError:  # CPython refuses to write more than 4300 decimal digits
        return hex(number)


def is_plain_ints(values: list[Any] | tuple[Any, ...]) -> bool:
    """Tell whether every value is an int that JSON readers hold (an empty list: yes)."""
    kinds = set(map(type, values))
    return not kinds or (kinds == {int} and min(values) >= MIN_INT and max(values) <= MAX_INT)


def is_plain_floats(values: list[Any] | tuple[Any, ...]) -> bool:
    """Tell whether every value is a finite float or an int that a float holds."""
    if not set(map(type, values)) <= {int, float}:
        return False
    try:
        return all(map(math.isfinite, values))
    except OverflowError:
        return False


def _plain_numbers(value: object) -> list[Any] | None:
    """Copy a list of numbers that needs no cleaning: token ids come by the hundred thousand."""
    if type(value) is not list:
        return None
    values = cast("list[Any]", value)
    kinds = set(map(type, values))
    plain = (kinds == {int} and is_plain_ints(values)) or (
        kinds == {float} and is_plain_floats(values)
    )
    return list(values) if plain else None


def _deep_text(value: object) -> str:
    try:
        return clean_text(json.dumps(value, default=_type_note, ensure_ascii=False))
    except (RecursionError, TypeError, ValueError):  # too deep for that too, odd keys, cycles
        return _type_note(value)


def _type_note(value: object) -> str:
    return f"<{type(value).__name__}>"
