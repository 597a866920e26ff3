"""Reading along with an answer that is passed on."""

from typing import Any

from osmosis_ai.rollout.policy import PolicyError, PolicyReply
from osmosis_ai.rollout.policy.answers import (
    DONE,
    Assembly,
    Endpoint,
    EventDecoder,
    as_array,
    as_object,
    chunk_in,
)


class AnswerReader:
    """Puts the replies in an answer together: one for each choice.

    What is wrong with an answer is its rollout's to find; here it is a note.

    Attributes:
        problem: Why there is no whole reply, or None.
        is_done: Whether the stream has said that nothing more comes.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.problem: str | None = None
        self.is_done = False
        self._endpoint = endpoint
        self._decoder = EventDecoder()
        self._assemblies: dict[int, Assembly] = {}

    def feed(self, data: bytes) -> None:
        """Take the next bytes of an event stream."""
        for event in self._decoder.feed(data):
            self.take(event.type, event.data)

    def take(self, kind: str, data: str | bytes) -> dict[str, Any] | None:
        """Take an event, or a whole completion, and return what it holds.

        Args:
            kind: The event's type.
            data: Its data.

        Returns:
            The chunk or the completion; None for what is none.
        """
        if data == DONE:
            self.is_done = True
            return None
        try:
            chunk = chunk_in(kind, data, self._endpoint)
        except PolicyError as error:
            self.problem = self.problem or error.message
            return None
        self._add(chunk)
        return chunk

    def replies(self) -> list[PolicyReply]:
        """Return the whole replies at the answer's end; none where it was not whole."""
        for event in self._decoder.finish():
            self.take(event.type, event.data)
        if self.problem is None:
            # What holds no chunk at all is an answer without an end, too.
            self._assemblies.setdefault(0, Assembly())
            try:
                return [self._assemblies[i].reply() for i in sorted(self._assemblies)]
            except PolicyError as error:
                self.problem = error.message
        return []

    def _add(self, chunk: dict[str, Any]) -> None:
        if self.problem is None:
            try:
                self._assemble(chunk)
            except PolicyError as error:
                self.problem = error.message

    def _assemble(self, chunk: dict[str, Any]) -> None:
        first = self._assemblies.setdefault(0, Assembly())
        first.add(chunk)
        for choice in map(as_object, as_array(chunk.get("choices"))):
            # An assembly takes the first choice of a chunk alone.
            if isinstance(index := choice.get("index"), int) and index > 0:
                other = self._assemblies.setdefault(index, Assembly())
                other.add({**chunk, "choices": [{**choice, "index": 0}]})
