"""A trainer that is called back: a real HTTP server that can fail in every way."""

import asyncio
import json
import socket
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

type Behaviour = Callable[[asyncio.StreamWriter], Awaitable[None]]
type Respond = Callable[["Call"], Behaviour]


@dataclass(frozen=True)
class Call:
    """One attempt, as the peer received it.

    Attributes:
        attempt: The number of this attempt among those with its key, from 1 on.
        at: When it had come, on the event loop's clock.
    """

    path: str
    headers: Mapping[str, str]
    raw: bytes
    attempt: int
    at: float

    @property
    def key(self) -> str:
        return self.headers["idempotency-key"]

    @property
    def channel(self) -> str:
        return self.path.split("/")[1]

    @property
    def body(self) -> dict[str, Any]:
        parsed: dict[str, Any] = json.loads(self.raw)
        return parsed


def answer(status: int = 200, body: bytes = b"", **headers: str) -> Behaviour:
    """Answer, and keep the connection."""
    lines = [f"HTTP/1.1 {status} -", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    head = "\r\n".join([*lines, "", ""]).encode()

    async def behave(writer: asyncio.StreamWriter) -> None:
        writer.write(head + body)

    return behave


def report(trajectory: object) -> Behaviour:
    return answer(body=json.dumps({"trajectory": trajectory}).encode())


async def reset(writer: asyncio.StreamWriter) -> None:
    """Break the connection once the request was read."""
    linger = struct.pack("ii", 1, 0)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.transport.abort()


async def hang(writer: asyncio.StreamWriter) -> None:
    """Never answer."""
    await asyncio.Event().wait()


async def half_a_head(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Le")
    writer.close()


async def half_a_body(writer: asyncio.StreamWriter) -> None:
    writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"trajec')
    writer.close()


async def no_http(writer: asyncio.StreamWriter) -> None:
    writer.write(b"220 mail.example ESMTP\r\n")
    writer.close()


@dataclass
class Peer:
    """The peer's address, and what it was sent."""

    port: int = 0
    respond: Respond = field(default=lambda _: answer())
    largest_body: int | None = None
    calls: list[Call] = field(default_factory=list[Call])
    refused: int = 0
    _attempts: dict[str, int] = field(default_factory=dict[str, int])
    _news: asyncio.Condition = field(default_factory=asyncio.Condition)

    def fields(self, rollout_id: str = "r-1", **more: Any) -> dict[str, Any]:
        """The request's fields for both callbacks."""
        base = f"http://127.0.0.1:{self.port}"
        return {
            "completion_callback_url": f"{base}/done/{rollout_id}",
            "grader_callback_url": f"{base}/graded/{rollout_id}",
            **more,
        }

    def to(self, channel: str, rollout_id: str = "r-1") -> list[Call]:
        return [call for call in self.calls if call.path == f"/{channel}/{rollout_id}"]

    async def wait_for(self, channel: str, count: int = 1, rollout_id: str = "r-1") -> list[Call]:
        """Return a channel's calls once there are `count` of them."""
        async with self._news:
            await self._news.wait_for(lambda: len(self.to(channel, rollout_id)) >= count)
        return self.to(channel, rollout_id)

    async def bodies(self, rollout_id: str = "r-1") -> tuple[dict[str, Any], dict[str, Any]]:
        """Return what the two channels were sent, once both were called."""
        graded = await self.wait_for("graded", 1, rollout_id)
        return self.to("done", rollout_id)[0].body, graded[0].body

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while not writer.is_closing():
                await self._take(reader, writer)
        writer.close()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {
            name.lower(): value.strip() for name, _, value in (h.partition(":") for h in head[1:])
        }
        length = int(headers["content-length"])
        if self.largest_body is not None and length > self.largest_body:
            # As proxies do: without reading what they do not want.
            self.refused += 1
            writer.write(b"HTTP/1.1 413 -\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            await writer.drain()
            writer.close()
            return
        raw = await reader.readexactly(length)
        method, path, _ = head[0].split(" ")
        assert method == "POST"
        key = headers["idempotency-key"]
        self._attempts[key] = self._attempts.get(key, 0) + 1
        now = asyncio.get_running_loop().time()
        call = Call(path, headers, raw, self._attempts[key], now)
        async with self._news:
            self.calls.append(call)
            self._news.notify_all()
        await self.respond(call)(writer)
        await writer.drain()


@asynccontextmanager
async def peer(respond: Respond | None = None, **options: Any) -> AsyncGenerator[Peer]:
    """Run a peer that answers 200, or what `respond` says."""
    made = Peer(**options)
    if respond is not None:
        made.respond = respond
    connections: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections.add(task)
        try:
            await made.serve(reader, writer)
        except asyncio.CancelledError:
            writer.transport.abort()
        finally:
            connections.discard(task)

    server = await asyncio.start_server(connected, "127.0.0.1", 0, limit=2**20, backlog=1024)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        for task in connections:
            task.cancel()
        if connections:
            await asyncio.wait(connections)


def in_turn(*behaviours: Behaviour) -> Respond:
    """Behave so at the first attempt of each delivery, so at the second; then answer 200."""

    def respond(call: Call) -> Behaviour:
        return behaviours[call.attempt - 1] if call.attempt <= len(behaviours) else answer()

    return respond
