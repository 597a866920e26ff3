"""Conversations of the framework into chat-completions form.

They are a mixture: the dataset's messages, which are in that form already and stay as they are; the
policy's turns, which are known as it wrote them; and items of the framework, such as tool outputs.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, cast

from osmosis_ai.rollout import MessageDict
from osmosis_ai.rollout.integrations.agents.openai_agents._sdk import chat_messages, chat_part
from osmosis_ai.rollout.integrations.agents.openai_agents._turns import Item, Turn, Turns


def to_chat(items: Sequence[Item], turns: Turns) -> list[MessageDict]:
    """Translate a conversation into the messages that are sent to the policy.

    Raises:
        agents.UserError: an item has no chat-completions form.
    """
    return [
        message
        for part in group(items, turns)
        for message in ([part.message] if isinstance(part, Turn) else _foreign(part, turns))
    ]


def group(items: Sequence[Item], turns: Turns) -> list[Turn | list[Item]]:
    """Split a conversation into the policy's turns and the items between them."""
    parts: list[Turn | list[Item]] = []
    for part in turns.split(items):
        if isinstance(part, Turn):
            parts.append(part)
        elif parts and isinstance(parts[-1], list):
            parts[-1].append(part)
        else:
            parts.append([part])
    return parts


def sourced(items: Sequence[Item], turns: Turns) -> Iterator[tuple[Item | None, MessageDict]]:
    """Translate items that are not a turn of the policy.

    Yields:
        The messages, each with the one item that it was made of where there is just one.

    Raises:
        agents.UserError: an item has no chat-completions form.
    """
    for is_assistant, some in groupby(items, _is_part_of_assistant_turn):
        if is_assistant:
            yield from ((None, message) for message in _assistant_turns(some, turns))
        else:
            yield from ((item, _message(item, turns)) for item in some)


def _foreign(items: Sequence[Item], turns: Turns) -> list[MessageDict]:
    return [message for _, message in sourced(items, turns)]


def _is_part_of_assistant_turn(item: Item) -> bool:
    if item.get("type") in (None, "message"):
        # As models put it out; what users write comes as text or as parts of chat completions.
        parts = item.get("content")
        return item.get("role") == "assistant" and isinstance(parts, list) and "id" in item
    return item.get("type") != "function_call_output"


def _message(item: Item, turns: Turns) -> MessageDict:
    if item.get("type") == "function_call_output":
        call_id = turns.original_id(item["call_id"])
        return {"role": "tool", "tool_call_id": call_id, "content": _content(item["output"])}
    keys = ("role", "content") if "type" in item else item
    message = {key: item[key] for key in keys}
    if "content" in message:
        message["content"] = _content(message["content"])
    return message


def _content(content: Any) -> Any:
    return (
        [_part(part) for part in cast("list[Any]", content)]
        if isinstance(content, list)
        else content
    )


def _part(part: Any) -> Any:
    match part:
        case {"type": "output_text", "text": text}:
            return {"type": "text", "text": text}
        case {"type": "input_file" | "input_image" | "input_text"}:
            return chat_part(cast("Item", part))
        case _:
            return part


def _assistant_turns(items: Iterable[Item], turns: Turns) -> list[MessageDict]:
    messages: list[MessageDict] = []
    for reasoning, others in _by_reasoning(items):
        converted = chat_messages(others)
        if reasoning and converted:
            converted[0]["reasoning_content"] = reasoning
        for call in (call for message in converted for call in message.get("tool_calls", ())):
            call["id"] = turns.original_id(call["id"])
        messages += converted
    return messages


def _by_reasoning(items: Iterable[Item]) -> Iterator[tuple[str, list[Item]]]:
    """Yield what was thought and what was said after it; the SDK's converter drops thoughts."""
    thought, said = "", list[Item]()
    for item in items:
        if item.get("type") != "reasoning":
            said.append(item)
            continue
        if said:
            yield thought, said
            thought, said = "", []
        parts = [*(item.get("summary") or ()), *(item.get("content") or ())]
        thought = "\n".join(filter(None, [thought, *(part["text"] for part in parts)]))
    if said:
        yield thought, said
