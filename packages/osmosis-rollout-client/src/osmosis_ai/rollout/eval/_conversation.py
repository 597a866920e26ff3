"""What a sample's messages tell of the work that was done: turns, tool calls, errors, tokens.

Messages are the framework's own: chat-completions messages, Strands messages with their content
blocks, or the items of the Responses API that the OpenAI Agents SDK keeps.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

_ERROR_STARTS = ("error", "an error occurred")


@dataclass(frozen=True, slots=True)
class Conversation:
    """Counts over one conversation.

    Attributes:
        turns: The assistant's turns.
        tool_calls: Tool calls in them.
        tool_errors: Results that say to be errors: flagged by the framework, or text that starts
            with `error` or `An error occurred`, in any case.
        prompt_tokens: Tokens that the policy read, over all turns; None unless every turn tells.
        completion_tokens: Tokens that the policy wrote, likewise.
    """

    turns: int
    tool_calls: int
    tool_errors: int
    prompt_tokens: int | None
    completion_tokens: int | None


def measure(messages: Sequence[Mapping[str, Any]]) -> Conversation:
    """Count what a sample's messages hold; what is malformed counts as nothing."""
    turns = list(_turns(messages))
    used = [_usage(turn) for turn in turns]
    results = [result for message in messages for result in _results(message)]
    return Conversation(
        turns=len(turns),
        tool_calls=sum(_calls(message) for message in messages),
        tool_errors=sum(map(_is_error, results)),
        prompt_tokens=_total([_count(usage, "prompt", "input", "inputTokens") for usage in used]),
        completion_tokens=_total(
            [_count(usage, "completion", "output", "outputTokens") for usage in used]
        ),
    )


def _turns(messages: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    calling = False
    for message in messages:
        if message.get("role") == "assistant":
            # A Responses turn may say something and call tools in items of their own.
            calling = "type" in message
            yield message
        elif message.get("type") == "function_call":
            if not calling:
                yield message
            calling = True
        elif message.get("type") != "reasoning":
            calling = False


def _calls(message: Mapping[str, Any]) -> int:
    if message.get("type") == "function_call":
        return 1
    blocks = sum("toolUse" in block for block in _objects(message.get("content")))
    return len(_objects(message.get("tool_calls"))) + blocks


def _results(message: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    if message.get("role") in {"tool", "function"}:
        yield message
    elif message.get("type") == "function_call_output":
        yield {"content": message.get("output"), "status": message.get("status")}
    for block in _objects(message.get("content")):
        if isinstance(result := block.get("toolResult"), Mapping):
            yield cast("Mapping[str, Any]", result)


def _is_error(result: Mapping[str, Any]) -> bool:
    flags = (result.get("is_error"), result.get("isError"), result.get("status") == "error")
    if any(flag is True for flag in flags):
        return True
    content = result.get("content")
    texts = (block.get("text") for block in _objects(content))
    said = content if isinstance(content, str) else next((text for text in texts if text), "")
    return isinstance(said, str) and said.lstrip().lower().startswith(_ERROR_STARTS)


def _usage(turn: Mapping[str, Any]) -> Mapping[str, Any]:
    for holder in (turn, turn.get("metadata")):
        if isinstance(holder, Mapping):
            usage = cast("Mapping[str, Any]", holder).get("usage")
            if isinstance(usage, Mapping):
                return cast("Mapping[str, Any]", usage)
    return {}


def _count(usage: Mapping[str, Any], *names: str) -> int | None:
    for name in names:
        value = usage.get(name if name.endswith("Tokens") else f"{name}_tokens")
        if isinstance(value, int) and value >= 0:
            return value
    return None


def _total(counts: list[int | None]) -> int | None:
    told = [count for count in counts if count is not None]
    return sum(told) if told and len(told) == len(counts) else None


def _objects(value: object) -> list[Mapping[str, Any]]:
    items = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("Mapping[str, Any]", item) for item in items if isinstance(item, Mapping)]
