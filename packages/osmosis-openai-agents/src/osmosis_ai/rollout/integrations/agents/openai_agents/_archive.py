"""Conversations in the form that is kept."""

from collections.abc import Mapping, Sequence

from openai.types.responses import ResponseFunctionToolCall

from osmosis_ai.rollout import MessageDict
from osmosis_ai.rollout.integrations.agents.openai_agents._chat import group, sourced
from osmosis_ai.rollout.integrations.agents.openai_agents._delegations import Run
from osmosis_ai.rollout.integrations.agents.openai_agents._turns import Item, Request, Turn, Turns
from osmosis_ai.rollout.types.copying import deep_copy


class Archive:
    """Writes down the conversations of one rollout, the main one first.

    What the endpoint told about a turn, and what the tools that it called have led to, is told
    once, where the turn was said: an agent may read on in the conversation of another one.

    Args:
        turns: The policy's turns.
        runs: The conversations of agents inside calls of tools, by the call's id.
    """

    def __init__(self, turns: Turns, runs: Mapping[str, Sequence[Run]]) -> None:
        self._turns = turns
        self._runs = dict(runs)
        self._told: set[Turn] = set()

    def write(self, items: Sequence[Item], first: Request | None) -> list[MessageDict]:
        """Return a conversation as chat-completions messages, instructions and tools included.

        Where agents took turns in it, each turn has its agent's name.

        Args:
            items: The conversation.
            first: What the policy was asked with at first, in case that no turn of it is left.

        Raises:
            agents.UserError: an item has no chat-completions form.
        """
        parts = group(items, self._turns)
        own = [part for part in parts if isinstance(part, Turn) and part not in self._told]
        requests = [turn.request for turn in own] or ([first] if first else [])
        has_names = len({request.agent_name for request in requests}) > 1
        answered = {item.get("call_id") for item in items if _is_result(item)}
        instructions = requests[0].instructions if requests else None
        messages = _system(requests[0], has_name=has_names) if requests else []
        for part in parts:
            if not isinstance(part, Turn):
                messages += self._others(part)
            elif part in self._told:
                messages.append(deep_copy(part.message))
            else:
                if part.request.instructions != instructions:
                    instructions = part.request.instructions
                    messages += _system(part.request, has_name=has_names)
                messages += self._own(part, answered, has_name=has_names)
        if (tools := _all_tools(requests)) and messages:
            messages[0]["tool_definitions"] = tools
        return messages

    def _own(self, turn: Turn, answered: set[str | None], *, has_name: bool) -> list[MessageDict]:
        """Return a turn, and the calls in it that agents worked for but that have no result."""
        self._told.add(turn)
        calls = [item for item in turn.output if isinstance(item, ResponseFunctionToolCall)]
        results: list[MessageDict] = [
            {
                "role": "tool",
                "tool_call_id": self._turns.original_id(call.call_id),
                "subagents": self._take_runs(call.call_id),
            }
            for call in calls
            if call.call_id in self._runs and call.call_id not in answered
        ]
        return [deep_copy(turn.archived) | _name(turn.request, has_name=has_name), *results]

    def _others(self, items: Sequence[Item]) -> list[MessageDict]:
        messages: list[MessageDict] = []
        for item, message in sourced(items, self._turns):
            messages.append(deep_copy(message))
            if item and _is_result(item) and (runs := self._take_runs(item.get("call_id", ""))):
                messages[-1]["subagents"] = runs
        return messages

    def _take_runs(self, call_id: str) -> list[MessageDict]:
        return [
            {"messages": self.write(run.items, run.request)} | _name(run.request)
            for run in self._runs.pop(call_id, ())
        ]


def _is_result(item: Item) -> bool:
    return item.get("type") == "function_call_output"


def _name(request: Request, *, has_name: bool = True) -> MessageDict:
    return {"agent_name": request.agent_name} if has_name and request.agent_name else {}


def _system(request: Request, *, has_name: bool) -> list[MessageDict]:
    if not request.instructions:
        return []
    name = _name(request, has_name=has_name)
    return [{"role": "system", "content": request.instructions, **name}]


def _all_tools(requests: Sequence[Request]) -> list[MessageDict]:
    """Return the tools that any agent of the conversation had, each once."""
    tools: dict[str, MessageDict] = {}
    for tool in (tool for request in requests for tool in request.tools):
        tools.setdefault(tool["function"]["name"], tool)
    return deep_copy([*tools.values()])
