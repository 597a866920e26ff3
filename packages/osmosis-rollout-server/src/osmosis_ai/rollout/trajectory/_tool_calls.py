"""Tool calls of an assistant message, and which of them a result answers."""

import json
import math
import re
from collections import defaultdict, deque
from collections.abc import Iterable
from contextlib import suppress

import orjson

from osmosis_ai.rollout.trajectory._json import (
    MAX_DEPTH,
    JsonObject,
    as_list,
    as_object,
    clean,
    compact_json,
    is_figure,
    nesting_bound,
)
from osmosis_ai.rollout.types.json_safety import clean_text

_LONG_NUMBER = re.compile("[0-9]{19}")


class TurnCalls:
    """The tool calls of one assistant turn in ATIF's form, each with an id of its own.

    Attributes:
        calls: The calls in order.
    """

    def __init__(self, raw_calls: Iterable[object] = ()) -> None:
        """Convert calls as chat completions have them, however malformed."""
        entries = [_entry(raw) for raw in raw_calls]
        self.calls: list[JsonObject] = []
        self._taken: set[str] = set()
        # An id that is made up must not be one that another call was given.
        self._given = {id_text(entry.get("id")) for entry in entries}
        self._copies: dict[str, int] = {}
        # By what a result may give: the calls that it may answer.
        self._waiting: defaultdict[str, deque[str]] = defaultdict(deque[str])
        for entry in entries:
            self._add(entry)

    def _add(self, entry: JsonObject) -> JsonObject:
        given = entry.pop("id", None)
        spelled = id_text(given)
        call_id = self._unique(spelled or f"call_{len(self.calls)}", is_given=spelled is not None)
        self._waiting[spelled or call_id].append(call_id)
        call: JsonObject = {"tool_call_id": call_id, **_name_and_arguments(entry)}
        if given is not None and given != call_id:
            call.setdefault("extra", {})["original_id"] = given
        self.calls.append(call)
        return call

    def add_legacy(self, raw: JsonObject) -> None:
        """Add a message's `function_call`, whose result gives the function's name, not an id."""
        call = self._add(_entry(raw))
        self._waiting[call["function_name"]].append(call["tool_call_id"])

    def answered_by(self, result_id: str | None) -> str | None:
        """Return the id of the call that a result with this id answers, None when there is none.

        Where a turn used an id several times, its calls get their results in order.
        """
        waiting = self._waiting.get(result_id) if result_id else None
        if not waiting:
            return None
        return waiting.popleft() if len(waiting) > 1 else waiting[0]

    def _unique(self, wanted: str, *, is_given: bool) -> str:
        call_id = wanted
        while call_id in self._taken or (call_id in self._given and not is_given):
            is_given = False
            self._copies[wanted] = self._copies.get(wanted, 1) + 1
            call_id = f"{wanted}_{self._copies[wanted]}"
        self._taken.add(call_id)
        return call_id


# Nothing is ever added to it.
_NO_CALLS = TurnCalls()


def take_calls(fields: JsonObject) -> TurnCalls:
    """Remove the tool calls from a cleaned assistant message's `fields` and convert them."""
    if "tool_calls" not in fields and "function_call" not in fields:
        return _NO_CALLS
    calls = as_list(fields.get("tool_calls"))
    if calls is not None:
        del fields["tool_calls"]
    turn = TurnCalls(calls or ())
    if (legacy := as_object(fields.get("function_call"))) is not None:
        del fields["function_call"]
        turn.add_legacy(legacy)
    return turn


def _entry(raw: object) -> JsonObject:
    entry = as_object(raw)
    return {"arguments": raw} if entry is None else dict(entry)


def id_text(value: object) -> str | None:
    """Return a call id as text: as it is, a number's digits, or None when it is not usable."""
    if isinstance(value, str):
        return value or None
    return str(value) if is_figure(value) else None


def _name_and_arguments(entry: JsonObject) -> JsonObject:
    members = _flat(entry)
    name = members.pop("name", None)
    raw = members.pop("arguments", None)
    if raw is None:
        raw = members.pop("input", None)
    if not isinstance(name, str) or not name:
        members["original_name"] = name
        name = "unknown"
    converted: JsonObject = {"function_name": name, "arguments": read_arguments(raw)}
    if extra := {key: value for key, value in members.items() if value is not None}:
        converted["extra"] = extra
    return converted


def _flat(entry: JsonObject) -> JsonObject:
    """Merge the `function` or `custom` object of a call into the call itself."""
    kind = entry.get("type")
    members = dict(entry)
    for inner in ("function", "custom"):
        if (described := as_object(entry.get(inner))) is not None:
            if kind == inner:
                del members["type"]
            del members[inner]
            # What both have stays apart, so that nothing is lost.
            if clash := members.keys() & described.keys():
                members[inner] = {key: members.pop(key) for key in clash}
            members |= described
            break
    return members


def read_arguments(raw: object) -> JsonObject:
    """Return a call's arguments as the JSON object that they are, else as `{"_raw": text}`.

    Missing and empty arguments are `{}`.
    """
    if raw is None or raw == "":
        return {}
    if (given := as_object(raw)) is not None:
        return given
    if not isinstance(raw, str):
        return {"_raw": compact_json(raw)}
    parsed = _parse(raw)
    return {"_raw": clean_text(raw)} if parsed is None else parsed


def _parse(text: str) -> JsonObject | None:
    # orjson is faster, but makes floats of integers beyond 64 bits and refuses lone surrogates.
    if nesting_bound(text) <= MAX_DEPTH and not _LONG_NUMBER.search(text):
        with suppress(orjson.JSONDecodeError):
            return as_object(orjson.loads(text))
    try:
        parsed: object = json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError):
        return None
    return as_object(clean(parsed))


def _finite(digits: str) -> float:
    if math.isinf(number := float(digits)):
        _refuse(digits)
    return number


def _refuse(digits: str) -> None:
    msg = f"a number of {len(digits)} characters is out of range"
    raise ValueError(msg)
