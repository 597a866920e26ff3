"""Server-sent events, decoded as the bytes come (HTML standard, section 9.2.6)."""

import re
from typing import NamedTuple

# Only these end a line: str.splitlines() would also cut at U+2028 and its like, which are data.
_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"


class ServerEvent(NamedTuple):
    """One event: its type, empty unless the server named one, and its data."""

    type: str
    data: str


class EventDecoder:
    """Turns the bytes of an event stream into events, however the bytes are split into reads."""

    def __init__(self) -> None:
        self._partial: list[bytes] = []
        self._after_cr = False
        self._at_start = True
        self._type = b""
        self._data: list[bytes] = []

    def feed(self, data: bytes) -> list[ServerEvent]:
        """Take the next bytes and return the events that they complete."""
        if self._after_cr and data.startswith(b"\n"):
            data, self._after_cr = data[1:], False
        if not data:
            return []
        self._after_cr = data.endswith(b"\r")
        first, *others = _LINE_END.split(data)
        self._partial.append(first)
        if not others:
            return []
        lines = [b"".join(self._partial), *others[:-1]]
        self._partial = [others[-1]]
        return [event for line in lines if (event := self._line(line))]

    def finish(self) -> list[ServerEvent]:
        """Return the event that the end of the stream completes, for servers that end abruptly."""
        line = b"".join(self._partial)
        return [event for part in (line, b"") if (event := self._line(part))]

    def _line(self, line: bytes) -> ServerEvent | None:
        if self._at_start:
            line, self._at_start = line.removeprefix(_BOM), False
        if not line:
            return self._dispatch()
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
        elif name == b"event":
            self._type = value.removeprefix(b" ")
        return None

    def _dispatch(self) -> ServerEvent | None:
        kind, data = self._type, self._data
        self._type, self._data = b"", []
        if not data:
            return None
        return ServerEvent(kind.decode(errors="replace"), b"\n".join(data).decode(errors="replace"))
