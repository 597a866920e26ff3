"""Joining the fragments of tool calls, also where servers disagree on how to tell them apart."""

import json
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import from_json

from osmosis_ai.rollout.policy._errors import PolicyError
from osmosis_ai.rollout.policy._reply import ToolCallPiece
from osmosis_ai.rollout.policy._values import as_object


@dataclass(frozen=True, slots=True)
class _Fragment:
    index: int | None
    id: str | None
    name: str | None
    arguments: str
    is_whole: bool
    """The arguments came as a JSON value rather than as text: nothing can be added to them."""
    extras: dict[str, Any]


@dataclass(slots=True)
class _Call:
    position: int
    index: int | None
    id: str | None = None
    name: str | None = None
    arguments: list[str] = field(default_factory=list[str])
    extras: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def text(self) -> str:
        return "".join(self.arguments)


class ToolCalls:
    """The tool calls of one reply.

    A fragment belongs to the call that is open at its index; without an index, to the latest call.
    An id that differs from that call's says otherwise: it names a call of before, or a new one.
    Where ids are missing, a name that comes after complete arguments starts a new call. An id that
    never came is made up at the end, `call_<position>`.
    """

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._by_id: dict[str, _Call] = {}

    def __bool__(self) -> bool:
        return bool(self._calls)

    def add(self, fragments: list[Any], *, are_whole: bool = False) -> tuple[ToolCallPiece, ...]:
        """Take the `tool_calls` of one chunk; `are_whole` when each entry is a call of its own.

        Raises:
            PolicyError: a fragment contradicts what came before, or could belong to several calls.
        """
        if not fragments:
            return ()
        read = [_read(item, place if are_whole else None) for place, item in enumerate(fragments)]
        anonymous = [part for part in read if (part.index, part.id, part.name) == (None,) * 3]
        if anonymous and len(read) > 1:
            problem = "a chunk holds several fragments that do not say which call is theirs"
            raise _broken(problem)
        return tuple(self._join(part) for part in read)

    def messages(self) -> list[dict[str, Any]]:
        """Return the finished calls in chat-completions form, in the order of their indexes.

        Raises:
            PolicyError: a call has no name.
        """
        ordered = sorted(self._calls, key=lambda c: c.position if c.index is None else c.index)
        taken = {call.id for call in ordered}
        return [self._message(call, place, taken) for place, call in enumerate(ordered)]

    def is_cut(self, *, by_length: bool) -> bool:
        """Tell whether the arguments of a call end in the middle of their JSON.

        Args:
            by_length: The policy stopped at its length limit, so whatever is not whole was cut.
        """
        texts = [call.text for call in self._calls]
        if by_length:
            return any(not _is_json(text) for text in texts)
        return any(_is_start_of_json(text) for text in texts)

    def _join(self, part: _Fragment) -> ToolCallPiece:
        call = self._call_of(part)
        if part.name and call.name and part.name != call.name:
            problem = f"call {call.position} is named twice, and differently"
            raise _broken(problem)
        if part.is_whole and call.arguments:
            problem = f"the arguments of call {call.position} came both as text and as a value"
            raise _broken(problem)
        call.id = call.id or part.id
        call.name = call.name or part.name
        if part.arguments:
            call.arguments.append(part.arguments)
        call.extras = part.extras | call.extras
        if part.index is not None:
            self._by_index[part.index] = call
        if call.id is not None:
            self._by_id.setdefault(call.id, call)
        return ToolCallPiece(call.position, call.id, call.name, part.arguments)

    def _call_of(self, part: _Fragment) -> _Call:
        if part.index is not None:
            current = self._by_index.get(part.index)
        else:
            current = self._calls[-1] if self._calls else None
        if current is not None and _continues(current, part):
            return current
        known = self._by_id.get(part.id) if part.id is not None else None
        # An id that comes again under an index of its own is a second call with a bad id.
        if known and (current is not None or part.index is None or known.index is None):
            return known
        call = _Call(position=len(self._calls), index=part.index)
        self._calls.append(call)
        return call

    @staticmethod
    def _message(call: _Call, place: int, taken: set[str | None]) -> dict[str, Any]:
        if call.name is None:
            problem = f"call {call.position} has no name"
            raise _broken(problem)
        call_id = call.id or _free_id(place, taken)
        function = {"name": call.name, "arguments": call.text}
        return {"id": call_id, "type": "function", "function": function, **call.extras}


def _continues(call: _Call, part: _Fragment) -> bool:
    """Tell whether the fragment goes on with the call that is open where it belongs."""
    if part.id is not None and call.id is not None:
        return part.id == call.id
    if part.name is None or call.name is None:
        return True
    if _is_json(call.text):
        return part.name == call.name and not part.arguments
    if part.name == call.name:
        return True
    problem = f"another name came before the arguments of call {call.position} were complete"
    raise _broken(problem)


def _free_id(place: int, taken: set[str | None]) -> str:
    while (call_id := f"call_{place}") in taken:
        place += 1
    taken.add(call_id)
    return call_id


def _read(item: object, place: int | None) -> _Fragment:
    call = as_object(item)
    function = as_object(call.get("function"))
    index = call.get("index", place)
    if index is not None and not (isinstance(index, int) and index >= 0):
        problem = "an index is no number"
        raise _broken(problem)
    arguments = function.get("arguments")
    is_whole = arguments is not None and not isinstance(arguments, str)
    return _Fragment(
        index=place if place is not None else index,
        id=_text(call.get("id")),
        name=_text(function.get("name")),
        arguments=json.dumps(arguments, ensure_ascii=False) if is_whole else arguments or "",
        is_whole=is_whole,
        extras={
            key: value
            for key, value in call.items()
            if key not in {"index", "id", "function"} and value is not None
        },
    )


def _text(value: object) -> str | None:
    # Some servers turn a missing id into the word.
    return None if value is None or value in ("", "null", "None") else str(value)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _is_start_of_json(text: str) -> bool:
    try:
        from_json(text, allow_partial=True)
        json.JSONDecoder().raw_decode(text.lstrip())
    except json.JSONDecodeError:
        return True
    except (ValueError, RecursionError):
        return False
    # A whole value with something behind it was not cut: the policy wrote it so.
    return False


def _broken(problem: str) -> PolicyError:
    return PolicyError(f"the policy's tool calls cannot be put together: {problem}")
