"""An answer on its way to the rollout: as it is, or without what the rollout did not ask for."""

import json
from typing import Protocol

from osmosis_ai.rollout.eval._gateway._blocks import Blocks, with_data
from osmosis_ai.rollout.eval._gateway._extras import Extras
from osmosis_ai.rollout.eval._gateway._reading import AnswerReader
from osmosis_ai.rollout.eval._json import compact_json
from osmosis_ai.rollout.policy.answers import DONE, EventDecoder, as_object


class Relay(Protocol):
    """Takes what comes from the upstream, and returns what goes on."""

    def take(self, data: bytes) -> bytes:
        """Take the next bytes."""
        ...

    def end(self) -> bytes:
        """Return what is left at the answer's end."""
        ...


def relay_for(extras: Extras, reader: AnswerReader, *, is_document: bool) -> Relay:
    """Return the relay for an answer: an event stream, or one JSON document."""
    if is_document:
        return _Document(extras, reader)
    return _Stripped(extras, reader) if extras else _Untouched(reader)


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

    def __init__(self, extras: Extras, reader: AnswerReader) -> None:
        self._extras = extras
        self._reader = reader
        self._blocks = Blocks()

    def take(self, data: bytes) -> bytes:
        self._reader.feed(data)
        return b"".join(map(self._passed, self._blocks.feed(data)))

    def end(self) -> bytes:
        return self._passed(self._blocks.rest())

    def _passed(self, block: bytes) -> bytes:
        if not self._extras.may_be_in(block):
            return block
        decoder = EventDecoder()
        events = [*decoder.feed(block), *decoder.finish()]
        if not events or events[0].data == DONE:
            return block
        data = _without(events[0].data, self._extras)
        if data is None:
            return block
        return with_data(block, data) if data else b""


class _Document:
    """Passes one document on, once it is whole."""

    def __init__(self, extras: Extras, reader: AnswerReader) -> None:
        self._extras = extras
        self._reader = reader
        self._parts: list[bytes] = []

    def take(self, data: bytes) -> bytes:
        self._parts.append(data)
        return b""

    def end(self) -> bytes:
        document = b"".join(self._parts)
        self._reader.read(document)
        if not self._extras.may_be_in(document):
            return document
        return _without(document, self._extras) or document


def _without(data: str | bytes, extras: Extras) -> bytes | None:
    """Return JSON without the extras: empty when nothing is left, None when it may stay."""
    try:
        chunk = as_object(json.loads(data))
    except (ValueError, RecursionError):
        return None
    kept = extras.without(chunk)
    if kept is chunk:
        return None
    if kept is None:
        return b""
    try:
        return compact_json(kept)
    except ValueError:
        # Engines may write NaN for a log probability; it is among what is taken out, or the
        # rollout's own to read.
        return json.dumps(kept).encode()
