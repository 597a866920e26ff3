"""What a rollout's calls to the policy told, found again by the messages that they produced.

Workflows append what they like to their conversation: a reply's plain message, a text of their own
making, one of several samples. An archive wants the telemetry of the call behind each turn, and a
wrong one is worse than none; so a call is matched by what it said and where, never by counting.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, cast

# Frameworks keep instructions elsewhere or add their own, so these are part of no place.
_UNPLACED_ROLES: Final = ("system", "developer")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a turn stands in a conversation.

    Attributes:
        depth: How many messages are before it, instructions not counted.
        last: What the last of them says.
    """

    depth: int = 0
    last: Hashable = None


def place_after(conversation: Sequence[Mapping[str, Any]]) -> Place:
    """Return the place of what is said next."""
    placed = [message for message in conversation if message.get("role") not in _UNPLACED_ROLES]
    return Place(len(placed), _saying(placed[-1])) if placed else Place()


@dataclass(frozen=True, slots=True, eq=False)
class _Call:
    place: Place
    saying: Hashable
    telemetry: Mapping[str, Any]
    tools: Sequence[Mapping[str, Any]]

    def fits(self, message: Mapping[str, Any]) -> bool:
        """Tell whether nothing that the message knows of its making says otherwise."""
        return all(message.get(key, known) == known for key, known in self.telemetry.items())


@dataclass(frozen=True, slots=True)
class _Turn:
    index: int
    place: Place
    saying: Hashable


class PolicyCalls:
    """The calls that were made to the policy in one rollout."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []

    def __bool__(self) -> bool:
        return bool(self._calls)

    def record(
        self,
        place: Place,
        message: Mapping[str, Any],
        telemetry: Mapping[str, Any],
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """Note a call that was answered.

        Args:
            place: The place after the conversation that was sent.
            message: The assistant's message that came back.
            telemetry: What is known of the call, by the keys that archives understand.
            tools: The tools that were offered.
        """
        self._calls.append(_Call(place, _saying(message), telemetry, tools))

    def annotate(
        self, messages: Sequence[Mapping[str, Any]], prompt: Sequence[Mapping[str, Any]] = ()
    ) -> list[Mapping[str, Any]]:
        """Return the messages, each turn with the telemetry of the call that produced it.

        A call belongs to the turn that says what it said at the place where it was made; else to
        the only turn that says it, where no other call said the same. What could belong to several
        or contradicts what a turn knows of its making is attached to none. The tools that these
        calls offered are the first message's `tool_definitions`, if it has none.

        Args:
            messages: The rollout's conversation, in chat-completions form; it is not changed.
            prompt: What the rollout started with: no call of its own produced these turns.
        """
        matches = self._by_place(messages, list(_turns(messages, prompt)))
        annotated = [
            {**matches[index].telemetry, **message} if index in matches else message
            for index, message in enumerate(messages)
        ]
        if tools := _tools(call for _, call in sorted(matches.items())):
            annotated[0] = {"tool_definitions": tools, **annotated[0]}
        return annotated

    def _by_place(
        self, messages: Sequence[Mapping[str, Any]], turns: list[_Turn]
    ) -> dict[int, _Call]:
        calls: defaultdict[Hashable, list[_Call]] = defaultdict(list)
        for call in self._calls:
            calls[call.place, call.saying].append(call)
        matches: dict[int, _Call] = {}
        left: list[_Turn] = []
        for turn in turns:
            candidates = calls.get((turn.place, turn.saying), [])
            fitting = [call for call in candidates if call.fits(messages[turn.index])]
            if len(fitting) == 1:
                matches[turn.index] = fitting[0]
            else:
                left.append(turn)
        return matches | self._by_words(messages, left, set(map(id, matches.values())))

    def _by_words(
        self, messages: Sequence[Mapping[str, Any]], turns: list[_Turn], taken: set[int]
    ) -> dict[int, _Call]:
        calls: defaultdict[Hashable, list[_Call]] = defaultdict(list)
        for call in self._calls:
            if id(call) not in taken:
                calls[call.saying].append(call)
        repeated = Counter(turn.saying for turn in turns)
        matches: dict[int, _Call] = {}
        for turn in turns:
            candidates = calls.get(turn.saying, [])
            if len(candidates) != 1 or repeated[turn.saying] > 1:
                continue
            # A turn that stands before the place of the call may have been there already.
            call = candidates[0]
            if call.place.depth <= turn.place.depth and call.fits(messages[turn.index]):
                matches[turn.index] = call
        return matches


def _tools(calls: Iterable[_Call]) -> list[Mapping[str, Any]]:
    return [*{_spelled(tool): tool for call in calls for tool in call.tools}.values()]


def _turns(
    messages: Sequence[Mapping[str, Any]], prompt: Sequence[Mapping[str, Any]]
) -> Iterator[_Turn]:
    """Yield the turns of `messages` that may be a call's."""
    given = {_saying(message) for message in prompt if message.get("role") == "assistant"}
    place = Place()
    for index, message in enumerate(messages):
        role = message.get("role")
        if role in _UNPLACED_ROLES:
            continue
        saying = _saying(message)
        if role == "assistant" and saying not in given:
            yield _Turn(index, place, saying)
        place = Place(place.depth + 1, saying)


def _saying(message: Mapping[str, Any]) -> Hashable:
    """Return what a message says, however its content and arguments are spelled."""
    calls = cast("object", message.get("tool_calls"))
    said = str(message.get("role")), _text(message.get("content"))
    return (*said, *map(_call, cast("list[object]", calls))) if isinstance(calls, list) else said


def _text(content: object) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    parts = cast("list[object]", content) if isinstance(content, list) else [None]
    texts = [text for text in map(_part_text, parts) if text is not None]
    return "".join(texts) if len(texts) == len(parts) else _spelled(cast("object", content))


def _part_text(part: object) -> str | None:
    text = cast("dict[str, Any]", part).get("text") if isinstance(part, dict) else part
    return text if isinstance(text, str) else None


def _call(call: object) -> Hashable:
    if not isinstance(call, dict):
        return repr(call)
    fields = cast("dict[str, Any]", call)
    function: Any = fields.get("function")
    described = cast("dict[str, Any]", function) if isinstance(function, dict) else {}
    arguments = described.get("arguments")
    if isinstance(arguments, str):
        with suppress(ValueError, RecursionError):
            arguments = json.loads(arguments)
    return str(fields.get("id")), str(described.get("name")), _spelled(arguments)


def _spelled(value: object) -> str:
    try:
        return json.dumps(value, sort_keys=True, default=repr)
    except (ValueError, TypeError, RecursionError):
        return repr(value)
