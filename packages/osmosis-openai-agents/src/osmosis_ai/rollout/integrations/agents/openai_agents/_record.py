"""What a rollout's session does not know about its conversation."""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from osmosis_ai.rollout import MessageDict
from osmosis_ai.rollout.integrations.agents.openai_agents._archive import Archive
from osmosis_ai.rollout.integrations.agents.openai_agents._delegations import Delegations
from osmosis_ai.rollout.integrations.agents.openai_agents._turns import (
    Item,
    Request,
    Turn,
    Turns,
    says_the_same,
)
from osmosis_ai.rollout.policy import PolicyError, PolicyReply

type State = tuple[int, Item | None]
"""How many items a session holds, and the last of them."""

_UNANSWERED_TYPES: Final = frozenset({None, "message", "function_call_output"})


@dataclass(eq=False)
class _Call:
    """A call to the policy: what the session held before, and the reply once it is there."""

    last: Item | None
    turn: Turn | None = None


class Record:
    """The replies of the policy in one rollout, and which of them the session lacks.

    The framework puts a turn into the session when it has been dealt with. If that fails, because
    the policy called a tool that does not exist for instance, the policy's last words are missing;
    and a filter on a handoff takes away parts of turns that were said. Turns of the conversation
    are those of the first call since the session changed that asks for what comes after the
    session's last item: what is called after that is called by tools of that turn, as agents are
    tools as well, and runs without the session ask for something else.

    Attributes:
        turns: The replies.
    """

    def __init__(self) -> None:
        self.turns: Turns = Turns()
        self._first: Request | None = None
        # By the call of a tool that they happened in, if that is known.
        self._outages: dict[str | None, PolicyError] = {}
        self._delegations = Delegations()
        # By the number of items that the session held.
        self._calls: dict[int, _Call] = {}

    @contextmanager
    def call(
        self, state: State, request: Request, items: Sequence[Item], tool_call: str | None
    ) -> Generator[Callable[[PolicyReply], Turn]]:
        """Follow one call to the policy; what the block gets takes the reply.

        Args:
            state: What the session holds.
            request: What the policy is asked with.
            items: The conversation that it is asked to go on with.
            tool_call: The call of a tool that it is made in, if that is known.

        Raises:
            PolicyError: the endpoint failed inside a tool of the last turn.
        """
        count, last = state
        call = _Call(last)
        turn = self._calls.get(count)
        asks_for_next = _waits_for_an_answer(last) and _ends_with(items, last)
        is_in_tool = turn.last == last if turn else tool_call is not None and not asks_for_next
        if not is_in_tool:
            self.raise_outage()
            if asks_for_next:
                self._calls[count] = call
                self._first = self._first or request

        def take(reply: PolicyReply) -> Turn:
            call.turn = self.turns.add(reply, request)
            self._outages.pop(tool_call, None)
            note(call.turn)
            return call.turn

        try:
            with self._delegations.ask(tool_call, request, items) as note:
                yield take
        except PolicyError as error:
            # The framework would tell the policy about its own outage, and go on.
            if is_in_tool and error.is_endpoint_failure:
                self._outages[tool_call] = error
            raise
        finally:
            if call.turn is None and self._calls.get(count) is call:
                del self._calls[count]

    def raise_outage(self) -> None:
        """End the rollout if the endpoint failed inside a tool, such as an agent, in the end.

        Raises:
            PolicyError: it did.
        """
        outages = list(self._outages.values())
        self._outages.clear()
        if outages:
            raise outages[0]

    def forget(self, count: int) -> None:
        """Note that the user's code took items away, so that `count` are left."""
        self._calls = {known: call for known, call in self._calls.items() if known < count}

    def complete(self, items: Sequence[Item]) -> list[Item]:
        """Return what the session holds, with the turns that it lacks, in their places."""
        whole = list(items)
        present = dict(self._places(items))
        for count, call in sorted(self._calls.items(), reverse=True):
            if call.turn is None or call.turn in present:
                continue
            own = {item.id for item in call.turn.output}
            held = [place for place, item in enumerate(whole) if item.get("id") in own]
            if held:
                place = held[0]
                whole = [item for item in whole if item.get("id") not in own]
            elif count <= len(items) and items[count - 1] == call.last:
                if count in present.values():
                    continue  # It was answered in another call; this one was of a run beside.
                place = count
            else:
                continue
            whole[place:place] = call.turn.items
        return whole

    def _places(self, items: Sequence[Item]) -> Iterator[tuple[Turn, int]]:
        """Yield the turns in the session, and where they begin."""
        place = 0
        for part in self.turns.split(items):
            if isinstance(part, Turn):
                yield part, place
            place += len(part.output) if isinstance(part, Turn) else 1

    def archive(self, items: Sequence[Item]) -> list[MessageDict]:
        """Return the conversation in the form that is kept, those inside its tools included.

        Raises:
            agents.UserError: an item has no chat-completions form.
        """
        return Archive(self.turns, self._delegations.runs).write(items, self._first)


def _ends_with(items: Sequence[Item], last: Item | None) -> bool:
    return last is not None and bool(items) and says_the_same(items[-1], last)


def _waits_for_an_answer(last: Item | None) -> bool:
    return (
        last is not None
        and last.get("type") in _UNANSWERED_TYPES
        and last.get("role") != "assistant"
    )
