"""HTTP/1.1 as a server reads it (RFC 9112): one request at a time from a connection."""

import asyncio
import re
from dataclasses import dataclass
from typing import Final

MAX_HEAD_BYTES: Final = 64 * 1024
MAX_BODY_BYTES: Final = 256 * 1024 * 1024

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;.*)?\r\n")


@dataclass(frozen=True)
class HttpRequest:
    """A whole request.

    Attributes:
        method: As sent, e.g. `POST`.
        path: The target without its query.
        query: The target's query, without the question mark.
        headers: By lower-case name; a repeated header's values are joined with `, `.
        body: The decoded body.
    """

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes


class HttpError(Exception):
    """A request that gets an error for an answer.

    Attributes:
        status: The HTTP status.
        message: What is wrong and what to do.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class Reader(asyncio.StreamReader):
    """A stream reader that tells at once when the peer has left, also while nobody reads.

    Attributes:
        gone: Set when the peer closed or reset the connection.
    """

    def __init__(self) -> None:
        super().__init__(limit=MAX_HEAD_BYTES)
        self.gone = asyncio.Event()

    def feed_eof(self) -> None:
        super().feed_eof()
        self.gone.set()

    def set_exception(self, exc: Exception) -> None:
        super().set_exception(exc)
        self.gone.set()


async def read_request(reader: Reader, writer: asyncio.StreamWriter) -> HttpRequest | None:
    """Read the next request, or None when the peer has closed the connection before one.

    Raises:
        HttpError: what was sent is no request that this server understands; nothing more can be
            read from the connection.
        ConnectionError: the peer reset the connection.
    """
    head = await _read_head(reader)
    if head is None:
        return None
    request_line, *header_lines = head.decode("latin-1").split("\r\n")
    method, path, query = _parse_request_line(request_line)
    headers = _parse_headers(header_lines)
    if headers.get("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    try:
        body = await _read_body(reader, headers)
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        raise HttpError(400, "the request's body is cut off or badly framed") from None
    return HttpRequest(method, path, query, headers, body)


async def _read_head(reader: Reader) -> bytes | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if not error.partial.strip():
            return None
        raise HttpError(400, "the request's head is cut off") from None
    except asyncio.LimitOverrunError:
        raise HttpError(431, f"the request's head is larger than {MAX_HEAD_BYTES} bytes") from None
    return head.strip(b"\r\n")


def _parse_request_line(line: str) -> tuple[str, str, str]:
    parts = line.split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/"):
        raise HttpError(400, "the first line is no HTTP request line")
    method, target, version = parts
    if version != "HTTP/1.1":
        raise HttpError(505, "only HTTP/1.1 is spoken here")
    path, _, query = target.partition("?")
    return method, path, query


def _parse_headers(lines: list[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not _TOKEN.fullmatch(name):
            raise HttpError(400, "the request has a malformed header line")
        name, value = name.lower(), value.strip(" \t")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


async def _read_body(reader: Reader, headers: dict[str, str]) -> bytes:
    encoding = headers.get("transfer-encoding")
    if encoding is not None:
        if encoding.lower() != "chunked":
            raise HttpError(501, "the only transfer encoding that is understood is chunked")
        return await _read_chunks(reader)
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdigit()):
        raise HttpError(400, "Content-Length is not a number of bytes")
    return await reader.readexactly(_checked_size(int(length)))


async def _read_chunks(reader: Reader) -> bytes:
    body = bytearray()
    while True:
        match = _CHUNK_SIZE.fullmatch(await reader.readuntil(b"\r\n"))
        if match is None:
            raise HttpError(400, "the request's body has a malformed chunk size")
        size = int(match[1], 16)
        if size == 0:
            break
        _checked_size(len(body) + size)
        body += await reader.readexactly(size)
        if await reader.readexactly(2) != b"\r\n":
            raise HttpError(400, "a chunk of the request's body is longer than its size")
    while await reader.readuntil(b"\r\n") != b"\r\n":
        pass  # trailers, which nothing here needs
    return bytes(body)


def _checked_size(size: int) -> int:
    if size > MAX_BODY_BYTES:
        raise HttpError(413, f"the request's body is larger than {MAX_BODY_BYTES} bytes")
    return size
