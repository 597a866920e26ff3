"""Lists of token ids and log probabilities, which make up most of a large document."""

from typing import Any, Final, cast

import orjson

from osmosis_ai.rollout.trajectory._json import JsonObject

_KINDS: Final = {int, float}
# Encoding this many takes less than a millisecond, in which no other thread runs.
_SLICE: Final = 20_000


class UnprovenError(Exception):
    """A list that was taken for numbers holds something else."""


class Numbers:
    """A list of nothing but numbers that every JSON reader takes: proved, or taken for it.

    The list is a sample's own: a copy of it, or of its JSON, would take longer than writing it.
    Writing it is the proof too, so what is written at once need not be proved before.

    Attributes:
        values: The numbers.
        are_ints: Whether all of them are integers.
    """

    __slots__ = ("are_ints", "values")

    def __init__(self, values: list[Any], *, are_ints: bool) -> None:
        self.values = values
        self.are_ints = are_ints

    def json(self) -> bytes:
        """Return the compact JSON of the list.

        Raises:
            UnprovenError: it holds something else, or not only integers when it should.
        """
        if len(self.values) <= _SLICE:
            return self._json(self.values)
        # In slices, between which other threads get their turn.
        starts = range(0, len(self.values), _SLICE)
        slices = (self.values[start : start + _SLICE] for start in starts)
        return b"[%b]" % b",".join(self._json(part)[1:-1] for part in slices)

    def _json(self, values: list[Any]) -> bytes:
        try:
            text = orjson.dumps(values)
        except orjson.JSONEncodeError as error:
            raise UnprovenError from error
        if not _is_numbers(text) or (self.are_ints and not _is_ints(text)):
            raise UnprovenError
        return text


def find_numbers(value: object, *, trust: bool = False) -> Numbers | None:
    """Return a list of numbers as such; None when it is anything else.

    Args:
        value: Any value of a message.
        trust: Whether to take a list that begins with a number for one.
    """
    if type(value) is not list:
        return None
    values = cast("list[Any]", value)
    if values and type(values[0]) not in _KINDS:
        return None
    numbers = Numbers(values, are_ints=not values or type(values[0]) is int)
    return numbers if trust or _prove(numbers) else None


def _prove(numbers: Numbers) -> bool:
    try:
        numbers.json()
    except UnprovenError:
        if not numbers.are_ints:
            return False
        numbers.are_ints = False
        return _prove(numbers)
    return True


def with_lists(members: JsonObject) -> JsonObject:
    """Return an object with copies of the lists in the place of its `Numbers`."""
    return {
        key: [*value.values] if isinstance(value, Numbers) else value
        for key, value in members.items()
    }


def _is_numbers(text: bytes) -> bool:
    # Of true, false and null, of texts, objects and lists there is always a trace.
    return (
        text.find(b"r") < 0
        and text.find(b"l") < 0
        and text.find(b'"') < 0
        and text.find(b"{") < 0
        and text.find(b"[", 1) < 0
    )


def _is_ints(text: bytes) -> bool:
    return text.find(b".") < 0 and text.find(b"e") < 0
