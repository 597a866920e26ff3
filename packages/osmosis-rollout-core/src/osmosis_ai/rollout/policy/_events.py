"""The events of an answer as they come, up to its end."""

from collections.abc import Sequence

from osmosis_ai.rollout.policy._chunks import DONE
from osmosis_ai.rollout.policy._http import Answer
from osmosis_ai.rollout.policy._sse import EventDecoder, ServerEvent


class EventReader:
    """Reads events out of an answer; one that is a JSON document is a single event."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._is_document = answer.is_json
        self._decoder = EventDecoder()
        self._is_over = False

    async def read(self) -> Sequence[tuple[str, str | bytes]]:
        """Return the next events, each as its type and its data; none at the end.

        Raises:
            PolicyError: the connection broke.
        """
        if self._is_document and not self._is_over:
            self._is_over = True
            return [("", await self._answer.read_all())]
        events: list[ServerEvent] = []
        while not (events or self._is_over):
            data = await self._answer.read()
            events = self._before_done(self._decoder.feed(data) if data else self._decoder.finish())
            self._is_over = self._is_over or not data
        return events

    def _before_done(self, events: list[ServerEvent]) -> list[ServerEvent]:
        for place, event in enumerate(events):
            if event.data == DONE:
                self._is_over = True
                return events[:place]
        return events
