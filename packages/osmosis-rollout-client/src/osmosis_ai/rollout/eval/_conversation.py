"""What a sample tells of the work that was done: turns, tool calls, errors and tokens."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from osmosis_ai.rollout.eval._messages import read_messages


@dataclass(frozen=True, slots=True)
class Conversation:
    """Counts over one conversation.

    Attributes:
        turns: The assistant's turns.
        tool_calls: Tool calls in them.
        tool_errors: Results of tools that say to be errors.
        prompt_tokens: Tokens that the policy read, over all turns; None unless every turn tells.
        completion_tokens: Tokens that the policy wrote, likewise.
    """

    turns: int
    tool_calls: int
    tool_errors: int
    prompt_tokens: int | None
    completion_tokens: int | None


def measure(messages: Sequence[Mapping[str, Any]]) -> Conversation:
    """Count what a sample's messages hold."""
    read = read_messages(messages)
    used = [message.usage for message in read if message.role == "assistant"]
    return Conversation(
        turns=len(used),
        tool_calls=sum(len(message.calls) for message in read),
        tool_errors=sum(message.failed for message in read),
        prompt_tokens=_total(used, "prompt_tokens", "input_tokens", "inputTokens"),
        completion_tokens=_total(used, "completion_tokens", "output_tokens", "outputTokens"),
    )


def _total(used: Sequence[Mapping[str, Any]], *names: str) -> int | None:
    told = [
        next((usage[name] for name in names if isinstance(usage.get(name), int)), None)
        for usage in used
    ]
    counts = [count for count in told if count is not None]
    return sum(counts) if counts and len(counts) == len(told) else None
