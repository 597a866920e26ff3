"""Conversations of agents that work inside a call of a tool, for the archive.

The framework starts a run inside a tool as any other, and tells the model nothing about it. What it
offers is a guardrail on the tool: it runs in the task of the call, right before the tool does, and
whatever the tool starts inherits its context variables.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import starmap
from typing import Any, Final

from agents import (
    FunctionTool,
    ToolGuardrailFunctionOutput,
    ToolInputGuardrail,
    ToolInputGuardrailData,
)
from agents.tool import Tool

from osmosis_ai.rollout import RolloutContext, get_rollout_context
from osmosis_ai.rollout.integrations.agents.openai_agents._turns import (
    Item,
    Request,
    Turn,
    says_the_same,
)

_running: ContextVar[tuple[RolloutContext | None, str] | None] = ContextVar(
    "osmosis_openai_agents_tool_call", default=None
)


@dataclass(eq=False)
class Run:
    """One conversation of an agent inside a call of a tool.

    Attributes:
        request: What the policy was asked with at first.
        items: The conversation so far.
        is_waiting: Whether the policy has yet to answer.
    """

    request: Request
    items: list[Item]
    is_waiting: bool = False

    def goes_on_with(self, items: Sequence[Item]) -> bool:
        """Tell whether a conversation is this one, some items later."""
        if self.is_waiting or len(items) < len(self.items):
            return False
        return all(starmap(says_the_same, zip(self.items, items, strict=False)))


class Delegations:
    """The conversations of one rollout that tools have led to.

    Attributes:
        runs: Them, by the id that the framework knows the tool's call by.
    """

    def __init__(self) -> None:
        self.runs: dict[str, list[Run]] = {}

    @contextmanager
    def ask(
        self, call_id: str | None, request: Request, items: Sequence[Item]
    ) -> Generator[Callable[[Turn], None]]:
        """Follow one call to the policy; what the block gets takes the policy's turn.

        Args:
            call_id: The call of a tool that it is made in, if it is in one.
            request: What the policy is asked with.
            items: The conversation that it is asked to go on with.
        """
        if call_id is None:
            yield lambda turn: None
            return
        runs = self.runs.setdefault(call_id, [])
        run = next((run for run in runs if run.goes_on_with(items)), None)
        if run is None:
            run = Run(request, [])
            runs.append(run)
        run.items, run.is_waiting = list(items), True
        try:
            yield lambda turn: run.items.extend(turn.items)
        finally:
            run.is_waiting = False


def follow(tools: Iterable[Tool]) -> None:
    """Have every call of these tools followed, in all the rollouts that use them."""
    for tool in tools:
        if isinstance(tool, FunctionTool):
            own = tool.tool_input_guardrails or []
            if _FOLLOWING not in own:
                tool.tool_input_guardrails = [_FOLLOWING, *own]


def running_call(context: RolloutContext) -> str | None:
    """Return the id of the innermost call of a tool of this rollout that the code runs in."""
    owner, call_id = _running.get() or (None, None)
    return call_id if owner is context else None


def _note_call(data: ToolInputGuardrailData) -> ToolGuardrailFunctionOutput:
    _running.set((get_rollout_context(), data.context.tool_call_id))
    return ToolGuardrailFunctionOutput.allow()


_FOLLOWING: Final = ToolInputGuardrail[Any](_note_call, name="osmosis_rollout")
