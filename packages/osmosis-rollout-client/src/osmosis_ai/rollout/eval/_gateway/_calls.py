"""The calls of one rollout, as the gateway saw them."""

import time
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from osmosis_ai.rollout.eval._gateway._history import History
from osmosis_ai.rollout.eval._gateway._turns import Turn, turn_of, turns_of
from osmosis_ai.rollout.policy import PolicyReply
from osmosis_ai.rollout.policy.answers import as_array, as_object

_MOST_TOKENS: Final = 2**53

type Messages = Sequence[Mapping[str, Any]]


@dataclass(slots=True, eq=False)
class Call:
    """One call of the policy.

    Attributes:
        began: When it came in, as `time.monotonic` has it.
        first_byte: When the answer began, or None.
        ended: When it was over, or None.
        retries: How often the gateway tried again before there was an answer.
        replies: The whole replies in the answer, one unless the rollout asked for several.
        answers: Their digests.
        problem: Why there is none, or None.
        rewrote: The place and the role of the first message in its prompt that rewrites what was
            said before, or None.
    """

    began: float = field(default_factory=time.monotonic)
    first_byte: float | None = None
    ended: float | None = None
    retries: int = 0
    replies: Sequence[PolicyReply] = ()
    answers: Sequence[Turn] = ()
    problem: str | None = None
    rewrote: tuple[int, str] | None = None

    @property
    def duration_sec(self) -> float | None:
        """How long it took to its end, in seconds; None for one that goes on."""
        return None if self.ended is None else self.ended - self.began

    @property
    def first_byte_sec(self) -> float | None:
        """How long the answer's first byte took, in seconds; None where none came."""
        return None if self.first_byte is None else self.first_byte - self.began

    @property
    def usage(self) -> dict[str, Any]:
        """The token counts as the upstream spelled them; empty where it did not tell."""
        return (self.replies[0].usage if self.replies else None) or {}

    def tokens(self, name: str) -> int | None:
        """Return one of these counts, or None."""
        return as_count(self.usage.get(name))


def as_count(value: object) -> int | None:
    """Return a count of tokens; None for what no upstream can have counted."""
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value <= _MOST_TOKENS else None


def messages_in(value: object) -> list[dict[str, Any]]:
    """Return the messages in what a request has in their place; what is no message is left out."""
    return [fields for fields in map(as_object, as_array(value)) if fields]


class Calls:
    """All calls of one rollout, in the order in which they came.

    Attributes:
        all: The calls.
    """

    def __init__(self) -> None:
        self.all: list[Call] = []
        self._history = History()

    def begin(self) -> Call:
        """Add a call that came in."""
        call = Call()
        self.all.append(call)
        return call

    def end(
        self, call: Call, messages: object, replies: Sequence[PolicyReply], problem: str | None
    ) -> None:
        """Note that a call is over.

        Args:
            call: The call.
            messages: What it sent.
            replies: What came back, where it was whole.
            problem: Why it was not, or None.
        """
        call.ended = time.monotonic()
        call.replies = replies
        call.answers = [turn_of(reply.message) for reply in replies]
        call.problem = problem
        prompt = turns_of(messages_in(messages))
        place = self._history.rewritten(prompt, call.began)
        call.rewrote = None if place is None else (place, prompt[place][0])
        self._history.add(prompt, call.answers, call.ended)

    @property
    def answered(self) -> list[Call]:
        """The calls that were answered whole."""
        return [call for call in self.all if call.replies]

    def behind(self, messages: Messages, prompt: Messages) -> list[Call | None]:
        """Return the call behind each assistant turn of a sample; None where there is none.

        Turns that the row's prompt brought are left out: no call is behind them by right.

        Args:
            messages: The sample's messages.
            prompt: The row's prompt.
        """
        made: dict[Turn, deque[Call]] = defaultdict(deque)
        for call in self.all:
            for answer in call.answers:
                made[answer].append(call)
        given = [turn for role, turn in turns_of(prompt) if role == "assistant"]
        found: list[Call | None] = []
        for role, turn in turns_of(messages):
            if role != "assistant":
                continue
            if turn in given:
                given.remove(turn)
            else:
                found.append(made[turn].popleft() if made[turn] else None)
        return found
