"""What the policy said, and the items that the framework keeps of it.

The framework takes a message of the policy apart into items, and what it makes of them again is not
always what the policy wrote: reasoning, nulls and unknown keys are lost. A policy under training
has to see its own words. So each reply is remembered with its items and is found again by what they
say. Items that somebody has changed are not found, and are translated afresh.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from agents.items import TResponseOutputItem

from osmosis_ai.rollout import MessageDict
from osmosis_ai.rollout.integrations.agents.openai_agents._items import reply_items
from osmosis_ai.rollout.policy import PolicyReply

type Item = Mapping[str, Any]
type _Mark = tuple[Any, ...]


@dataclass(frozen=True)
class Request:
    """What the policy was asked with, beside the conversation.

    Attributes:
        instructions: The agent's instructions.
        tools: The agent's tools and handoffs, in chat-completions form.
        agent_name: The agent's name, as far as the framework tells it.
    """

    instructions: str | None
    tools: list[dict[str, Any]]
    agent_name: str | None = None


@dataclass(frozen=True, eq=False)
class Turn:
    """One reply of the policy.

    Attributes:
        request: What it answers.
        output: Its items, as the framework gets them.
        message: The message that is sent when the conversation goes on.
        archived: The same, with what the endpoint told about it.
    """

    request: Request
    output: list[TResponseOutputItem]
    message: MessageDict
    archived: MessageDict

    @property
    def items(self) -> list[dict[str, Any]]:
        """Its items in the form in which sessions hold them."""
        return [item.model_dump(exclude_unset=True) for item in self.output]


class Turns:
    """The replies that the policy gave in one rollout.

    The framework takes a call id that comes again for the same call and does not run it, while many
    endpoints count from zero in every reply. So an id that comes again is replaced towards the
    framework, and put back towards the policy.
    """

    def __init__(self) -> None:
        self._count = 0
        self._by_first_mark: dict[_Mark, list[tuple[list[_Mark], Turn]]] = {}
        self._original_ids: dict[str, str] = {}

    def __len__(self) -> int:
        return self._count

    def add(self, reply: PolicyReply, request: Request) -> Turn:
        """Remember a reply and return its turn."""
        self._count += 1
        call_ids = [self._free_id(call["id"]) for call in reply.tool_calls]
        output = reply_items(reply, self._count, call_ids)
        turn = Turn(request, output, reply.message, _archived(reply))
        marks = [_mark(item) for item in turn.items]
        self._by_first_mark.setdefault(marks[0], []).append((marks, turn))
        return turn

    def original_id(self, call_id: str) -> str:
        """Return the id by which the policy knows a call."""
        return self._original_ids.get(call_id, call_id)

    def split(self, items: Sequence[Item]) -> Iterator[Turn | Item]:
        """Yield the parts of a conversation: whole turns of the policy, and the other items."""
        marks = [_mark(item) for item in items]
        place = 0
        while place < len(items):
            length, part = self._part_at(items[place], marks, place)
            yield part
            place += length

    def _part_at(self, first: Item, marks: Sequence[_Mark], place: int) -> tuple[int, Turn | Item]:
        fitting = [
            (len(said), turn)
            for said, turn in self._by_first_mark.get(marks[place], ())
            if said == marks[place : place + len(said)]
        ]
        if not fitting:
            if first.get("type") == "function_call" and (call_id := first.get("call_id")):
                self._original_ids.setdefault(call_id, call_id)
            return 1, first
        same = (part for part in fitting if part[1].output[0].id == first.get("id"))
        # Ids may have been taken off on the way; then the longest, and of those the latest.
        return next(same, max(reversed(fitting), key=lambda part: part[0]))

    def _free_id(self, original: str) -> str:
        call_id, count = original, 1
        while call_id in self._original_ids:
            count += 1
            call_id = f"{original}_{count}"
        self._original_ids[call_id] = original
        return call_id


def says_the_same(one: Item, other: Item) -> bool:
    """Tell whether two items are the same, whatever became of their ids on the way."""
    mark = _mark(one)
    return mark == _mark(other) and (bool(mark) or one == other)


def _archived(reply: PolicyReply) -> MessageDict:
    message = reply.annotated
    if reply.truncated:
        message["truncated"] = True
    if reply.finish_reason == "length":
        message["finish_reason"] = "length"
    return message


def _mark(item: Item) -> _Mark:
    """Return what an item of the policy says; items of others have an empty mark."""
    match item.get("type"):
        case "function_call":
            return "call", item.get("call_id"), item.get("name"), item.get("arguments")
        case "message" if item.get("role") == "assistant":
            return "message", *_texts(item.get("content"))
        case "reasoning":
            return "reasoning", *_texts(item.get("summary"))
        case _:
            return ()


def _texts(parts: Any) -> list[Any]:
    if not isinstance(parts, list):
        return [parts]
    return [_text(part) for part in cast("list[Any]", parts)]


def _text(part: Any) -> Any:
    match part:
        case {"text": text} | {"refusal": text}:
            return text
        case _:
            return part
