"""Event streams in blocks: the bytes of one event each, as they came."""

import re

# A line's end, and an empty line; neither takes a CR LF for two of them.
_END = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
_LINE = re.compile(rb"[^\r\n]*(?>\r\n|\n|\r|$)")


class Blocks:
    """Cuts an event stream after every event, however it is split into reads.

    No byte is lost or added: the blocks and the rest are the stream.
    """

    def __init__(self) -> None:
        self._held = bytearray()
        self._seen = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Take the next bytes and return the blocks that they complete."""
        self._held += data
        blocks: list[bytes] = []
        start = 0
        # An end may have begun in the bytes before.
        for end in _END.finditer(self._held, max(0, self._seen - 3)):
            blocks.append(bytes(self._held[start : end.end()]))
            start = end.end()
        del self._held[:start]
        self._seen = len(self._held)
        return blocks

    def rest(self) -> bytes:
        """Return what is left where the stream has ended."""
        rest, self._held = bytes(self._held), bytearray()
        return rest


def with_data(block: bytes, data: bytes) -> bytes:
    """Return a block with other data, on one line; its other fields and its line ends stay."""
    lines = [line for line in _LINE.findall(block) if line]
    first = next(i for i, line in enumerate(lines) if line.startswith(b"data"))
    ending = lines[first][len(lines[first].rstrip(b"\r\n")) :]
    others = [line for line in lines[first:] if not line.startswith(b"data")]
    return b"".join([*lines[:first], b"data: ", data, ending, *others])
