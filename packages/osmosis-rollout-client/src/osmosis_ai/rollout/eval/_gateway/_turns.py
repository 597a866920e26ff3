"""Turns of a conversation in a form that compares, whichever framework handled them."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from osmosis_ai.rollout.eval._messages import Call, Message, read_messages

type Turn = bytes
"""A digest that is the same for turns with the same content only."""


def turns_of(messages: Sequence[Mapping[str, Any]]) -> list[tuple[str, Turn]]:
    """Return the role and the digest of every message.

    Frameworks may write the same turn in another way: content as text or as parts, none or empty,
    arguments as text or as an object, with their keys in another order; and they may leave the
    reasoning out, rename calls, and put white space at the ends. None of it makes another turn.
    """
    return [(message.role, _digest(message)) for message in read_messages(messages)]


def turn_of(message: Mapping[str, Any]) -> Turn:
    """Return the digest of an answer."""
    return turns_of([message])[-1][1]


def _digest(message: Message) -> Turn:
    calls = sorted([call.name, _arguments(call)] for call in message.calls)
    content = json.dumps([message.role, message.text.strip(), calls])
    return hashlib.blake2b(content.encode(), digest_size=16).digest()


def _arguments(call: Call) -> str:
    try:
        return json.dumps(json.loads(call.arguments or "{}"), sort_keys=True)
    except (ValueError, RecursionError):
        return call.arguments
