"""What Strands messages stand for, so that the policy reads what it wrote.

Strands rewrites what it sends: it parses tool arguments and prints them anew, puts `[blank text]`
where the policy said nothing, renames tools that do not exist and drops every key that it does not
know. A policy under training has to see its own words. So each reply, and each message of the
prompt, is remembered together with the Strands message that was made from it, and is found again by
that message's content. What a hook or a manager has changed is not found and is translated afresh.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from osmosis_ai.rollout import MessageDict
from osmosis_ai.rollout.integrations.agents.strands._to_chat import to_chat

_BLANK = "[blank text]"


def _digestible(value: object) -> str:
    return hashlib.sha256(value).hexdigest() if isinstance(value, bytes) else repr(value)


# `json.dumps` would build one for each message of each turn.
_ENCODER: Final = json.JSONEncoder(default=_digestible, skipkeys=True)


@dataclass(frozen=True)
class Origin:
    """The chat-completions messages that a Strands message was made from.

    Attributes:
        wire: What is sent to the policy.
        archive: What is kept: the same, with what the endpoint told about a reply.
        cut_calls: Strands `toolUse` blocks that a reply at its length limit left behind. They are
            part of the record, but Strands never sees them, or it would run or paraphrase them.
    """

    wire: list[MessageDict]
    archive: list[MessageDict]
    cut_calls: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])


type Recalled = tuple[Mapping[str, Any], Origin | None]
"""A message of a history, and its origin if it has one."""


class Memory:
    """Origins by the content of the Strands messages that were made from them."""

    def __init__(self) -> None:
        self._origins: dict[bytes, list[Origin | None]] = {}

    def remember(self, message: Mapping[str, Any], origin: Origin) -> None:
        """Note where `message` comes from."""
        self._origins.setdefault(_fingerprint(message), []).append(origin)

    def recall(self, messages: Sequence[Mapping[str, Any]]) -> list[Recalled]:
        """Return each message of a history with its origin, or None where it has none.

        Of messages with equal content the last gets the last origin, and so on backwards: what a
        window removes, and what a hook discards to try again, came earlier.
        """
        result: list[Recalled] = []
        found: Counter[bytes] = Counter()
        for message in reversed(messages):
            fingerprint = _fingerprint(message)
            origins = self._origins.get(fingerprint, [None])
            found[fingerprint] += 1
            result.append((message, origins[-min(found[fingerprint], len(origins))]))
        return result[::-1]

    def wire(self, messages: Sequence[Mapping[str, Any]]) -> list[MessageDict]:
        """Translate a history into what is sent to the policy.

        Raises:
            ValueError: a message of unknown origin has no chat-completions form.
        """
        return [
            turn
            for message, origin in self.recall(messages)
            for turn in (origin.wire if origin else to_chat(message))
        ]


def _fingerprint(message: Mapping[str, Any]) -> bytes:
    content = message["content"]
    if message["role"] == "assistant":
        content = [_as_written(block) for block in content if not _is_blank(block)]
    return hashlib.sha256(_ENCODER.encode([message["role"], content]).encode()).digest()


def _is_blank(block: Mapping[str, Any]) -> bool:
    return "text" in block and (block["text"] or "").strip() in ("", _BLANK)


def _as_written(block: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the block without what Strands changes on the way to the model."""
    if "toolUse" not in block:
        return block
    use = block["toolUse"]
    return {"toolUse": [use["toolUseId"], use["input"]]}
