"""Conversations of agents that work inside a tool call of the rollout's agent.

They are kept for the archive, and tell whether the policy's endpoint failed in there.
"""

from collections import defaultdict
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any, override

from strands.hooks import (
    AfterToolCallEvent,
    BeforeModelCallEvent,
    BeforeToolCallEvent,
    HookProvider,
    HookRegistry,
)

from osmosis_ai.rollout import MessageDict
from osmosis_ai.rollout.policy import PolicyError


@dataclass
class _Run:
    """One conversation of a sub-agent: what it last sent, the policy's turns, the outage if any."""

    agent_name: str | None
    sent: list[MessageDict] = field(default_factory=list[MessageDict])
    turns: dict[int, MessageDict] = field(default_factory=dict[int, MessageDict])
    is_waiting: bool = False
    outage: PolicyError | None = None

    def goes_on_with(self, conversation: Sequence[MessageDict]) -> bool:
        """Tell whether a conversation is this one, some turns later."""
        said = len(self.sent) + (len(self.sent) in self.turns)
        if self.is_waiting or len(conversation) < said:
            return False
        return list(conversation[: len(self.sent)]) == self.sent

    def messages(self) -> list[MessageDict]:
        """Return the conversation with the policy's turns as they were archived."""
        last = [MessageDict()] if len(self.sent) in self.turns else []
        return [self.turns.get(place, said) for place, said in enumerate([*self.sent, *last])]


@dataclass
class _ToolCall:
    runs: list[_Run] = field(default_factory=list[_Run])


@dataclass
class _Asked:
    """A tool call in a conversation: the place of the turn that asked for it, and its result."""

    place: int
    result: MessageDict | None = None


# Tools run in tasks or threads that inherit it.
_running: ContextVar[_ToolCall | None] = ContextVar("osmosis_strands_tool_call", default=None)


class Delegations(HookProvider):
    """Follows the tool calls of one agent; the calls of the model in between are a sub-agent's."""

    def __init__(self) -> None:
        self._calls: defaultdict[str, list[_ToolCall]] = defaultdict(list[_ToolCall])

    @override
    def register_hooks(self, registry: HookRegistry, **kwargs: Any) -> None:
        registry.add_callback(BeforeToolCallEvent, self._before_tool_call)
        registry.add_callback(AfterToolCallEvent, self._end_tool_call)
        registry.add_callback(BeforeModelCallEvent, self._end_tool_call)

    def attach(self, messages: list[MessageDict]) -> None:
        """Put the sub-agents' conversations on the results of the tool calls that they worked for.

        A call that was cut off gets a result without content for them. Where ids are used again and
        it is not clear which of their calls were run, none of the id gets any.
        """
        cut_off: list[tuple[int, MessageDict]] = []
        for call_id, asked in _asked(messages).items():
            calls = self._calls.get(call_id, [])
            answered = [one for one in asked if one.result is not None]
            fitting = next((s for s in (asked, answered) if len(s) == len(calls)), list[_Asked]())
            for one, call in zip(fitting, calls, strict=False):
                if not call.runs:
                    continue
                if one.result is None:
                    one.result = {"role": "tool", "tool_call_id": call_id}
                    cut_off.append((one.place + 1, one.result))
                one.result["subagents"] = [_told(run) for run in call.runs]
        # From the end, so that the places stay right.
        for place, result in reversed(sorted(cut_off, key=lambda one: one[0])):
            messages.insert(place, result)

    def _before_tool_call(self, event: BeforeToolCallEvent) -> None:
        call = _ToolCall()
        self._calls[event.tool_use["toolUseId"]].append(call)
        _running.set(call)

    def _end_tool_call(self, event: AfterToolCallEvent | BeforeModelCallEvent) -> None:
        # The next one may run in the same task.
        _running.set(None)


def outage_inside() -> PolicyError | None:
    """Return the endpoint's failure that ended a conversation inside the running tool call."""
    call = _running.get()
    outages = (run.outage for run in (call.runs if call else ()))
    return next(filter(None, outages), None)


@contextmanager
def noting(
    conversation: Sequence[MessageDict], invocation_state: Mapping[str, Any]
) -> Generator[Callable[[MessageDict], None]]:
    """Note a call to the policy if it is made inside a tool call.

    Args:
        conversation: What is sent.
        invocation_state: Strands' state of the calling agent.

    Yields:
        What takes the policy's turn as it is archived.
    """
    call = _running.get()
    if call is None:
        yield lambda turn: None
        return
    run = next((run for run in call.runs if run.goes_on_with(conversation)), None)
    if run is None:
        run = _Run(getattr(invocation_state.get("agent"), "name", None))
        call.runs.append(run)
    run.sent, run.is_waiting = [dict(message) for message in conversation], True
    run.outage = None
    try:
        yield partial(run.turns.__setitem__, len(run.sent))
    except PolicyError as error:
        run.outage = error if error.is_endpoint_failure else None
        raise
    finally:
        run.is_waiting = False


def _asked(messages: Sequence[MessageDict]) -> dict[str, list[_Asked]]:
    """Return the tool calls of a conversation by their ids."""
    asked: defaultdict[str, list[_Asked]] = defaultdict(list[_Asked])
    waiting: defaultdict[str, list[_Asked]] = defaultdict(list[_Asked])
    for place, message in enumerate(messages):
        if message["role"] == "assistant":
            waiting.clear()
            # Turns of the prompt are as odd as the dataset.
            for call in message.get("tool_calls") or ():
                one, call_id = _Asked(place), str(call.get("id"))
                asked[call_id].append(one)
                waiting[call_id].append(one)
        elif message["role"] == "tool" and (calls := waiting[str(message.get("tool_call_id"))]):
            calls.pop(0).result = message
    return asked


def _told(run: _Run) -> dict[str, Any]:
    messages = run.messages()
    return {"messages": messages} | ({"agent_name": run.agent_name} if run.agent_name else {})
