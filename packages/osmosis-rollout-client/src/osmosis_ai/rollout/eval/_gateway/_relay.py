"""An answer on its way to the rollout: as it is, or without what the rollout did not ask for.

What is no chunk may be an error that repeats the upstream's key, which is not the rollout's.
"""

import json
from typing import Any, Protocol

from osmosis_ai.rollout.eval._gateway._answer import Answer
from osmosis_ai.rollout.eval._gateway._blocks import Blocks, with_data
from osmosis_ai.rollout.eval._gateway._extras import Extras
from osmosis_ai.rollout.eval._gateway._reading import AnswerReader
from osmosis_ai.rollout.eval._json import compact_json
from osmosis_ai.rollout.policy.answers import EventDecoder


class Relay(Protocol):
    """Takes what comes from the upstream, and returns what goes on."""

    def take(self, data: bytes) -> bytes:
        """Take the next bytes."""
        ...

    def end(self) -> bytes:
        """Return what is left at the answer's end."""
        ...


def relay_for(answer: Answer, extras: Extras, reader: AnswerReader) -> Relay:
    """Return the relay for an answer: an event stream, or one JSON document."""
    if answer.is_document:
        return _Document(answer, extras, reader)
    if extras or answer.upstream.endpoint.secrets:
        return _Stripped(answer, extras, reader)
    return _Untouched(reader)


class _Untouched:
    """Passes a stream on as it is."""

    def __init__(self, reader: AnswerReader) -> None:
        self._reader = reader

    def take(self, data: bytes) -> bytes:
        self._reader.feed(data)
        return data

    def end(self) -> bytes:
        return b""


class _Stripped:
    """Passes a stream on event by event."""

    def __init__(self, answer: Answer, extras: Extras, reader: AnswerReader) -> None:
        self._redact = answer.redact
        self._extras = extras
        self._reader = reader
        self._blocks = Blocks()

    def take(self, data: bytes) -> bytes:
        return b"".join(map(self._passed, self._blocks.feed(data)))

    def end(self) -> bytes:
        return self._passed(self._blocks.rest())

    def _passed(self, block: bytes) -> bytes:
        decoder = EventDecoder()
        events = [*decoder.feed(block), *decoder.finish()]
        if not events:
            return self._redact(block)
        [event] = events
        chunk = self._reader.take(event.type, event.data)
        if chunk is None:
            return self._redact(block)
        if not self._extras.may_be_in(block):
            return block
        kept = self._extras.without(chunk)
        if kept is None:
            return b""
        return block if kept is chunk else with_data(block, _encoded(kept))


class _Document:
    """Passes one document on, once it is whole."""

    def __init__(self, answer: Answer, extras: Extras, reader: AnswerReader) -> None:
        self._redact = answer.redact
        self._extras = extras
        self._reader = reader
        self._parts: list[bytes] = []

    def take(self, data: bytes) -> bytes:
        self._parts.append(data)
        return b""

    def end(self) -> bytes:
        document = b"".join(self._parts)
        completion = self._reader.take("", document)
        if completion is None:
            return self._redact(document)
        if not self._extras.may_be_in(document):
            return document
        kept = self._extras.without(completion)
        return document if kept is completion or kept is None else _encoded(kept)


def _encoded(chunk: dict[str, Any]) -> bytes:
    try:
        return compact_json(chunk)
    except ValueError:
        # Python's servers write NaN; what the rollout asked for is its own to read.
        return json.dumps(chunk).encode()
