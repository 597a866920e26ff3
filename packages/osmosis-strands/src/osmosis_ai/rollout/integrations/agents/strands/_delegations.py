"""Conversations of agents that work inside a tool call of the rollout's agent, for the archive."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, override

from strands.hooks import (
    AfterToolCallEvent,
    BeforeModelCallEvent,
    BeforeToolCallEvent,
    HookProvider,
    HookRegistry,
)

from osmosis_ai.rollout import MessageDict


@dataclass
class _Run:
    """One conversation of a sub-agent: what it last sent, and the policy's turns in it."""

    agent_name: str | None
    sent: list[MessageDict] = field(default_factory=list[MessageDict])
    turns: dict[int, MessageDict] = field(default_factory=dict[int, MessageDict])

    def goes_on_with(self, conversation: Sequence[MessageDict]) -> bool:
        """Tell whether a conversation is this one, some turns later."""
        return list(conversation[: len(self.sent)]) == self.sent

    def messages(self) -> list[MessageDict]:
        """Return the conversation with the policy's turns as they were archived."""
        last = [MessageDict()] if len(self.sent) in self.turns else []
        return [self.turns.get(place, said) for place, said in enumerate([*self.sent, *last])]


@dataclass
class _ToolCall:
    runs: list[_Run] = field(default_factory=list[_Run])


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

    def attach(self, messages: Sequence[MessageDict]) -> None:
        """Put the sub-agents' conversations on the results of the tool calls that they worked for.

        Where ids are used again and not every result has its call, none of the id gets any.
        """
        results = [message for message in messages if message["role"] == "tool"]
        counts = Counter(result.get("tool_call_id") for result in results)
        calls = {
            call_id: iter(calls)
            for call_id, calls in self._calls.items()
            if counts[call_id] == len(calls)
        }
        for result in results:
            call = next(calls.get(result.get("tool_call_id", ""), iter(())), None)
            if call is not None and call.runs:
                result["subagents"] = [_told(run) for run in call.runs]

    def _before_tool_call(self, event: BeforeToolCallEvent) -> None:
        call = _ToolCall()
        self._calls[event.tool_use["toolUseId"]].append(call)
        _running.set(call)

    def _end_tool_call(self, event: AfterToolCallEvent | BeforeModelCallEvent) -> None:
        # The next one may run in the same task.
        _running.set(None)


def note_call(
    conversation: Sequence[MessageDict], turn: MessageDict, invocation_state: Mapping[str, Any]
) -> None:
    """Note a call to the policy if it is made inside a tool call.

    Args:
        conversation: What was sent.
        turn: The policy's turn as it is archived.
        invocation_state: Strands' state of the calling agent.
    """
    call = _running.get()
    if call is None:
        return
    run = next((run for run in call.runs if run.goes_on_with(conversation)), None)
    if run is None:
        run = _Run(getattr(invocation_state.get("agent"), "name", None))
        call.runs.append(run)
    run.sent = [dict(message) for message in conversation]
    run.turns[len(run.sent)] = turn


def _told(run: _Run) -> dict[str, Any]:
    messages = run.messages()
    return {"messages": messages} | ({"agent_name": run.agent_name} if run.agent_name else {})
