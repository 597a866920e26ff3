"""Sends one reply over one connection."""

import asyncio
import json
import socket
import struct
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future
from http import HTTPStatus
from typing import Any, Final

from osmosis_ai.rollout.testing._http import Reader
from osmosis_ai.rollout.testing._replies import Reply
from osmosis_ai.rollout.testing._steps import Comment, Cut, Gate, Pause

# Linger switched on, for zero seconds: closing the socket then sends RST.
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)


class ClientGoneError(Exception):
    """The client left before the whole reply was sent."""


class Sender:
    """Plays a reply's steps; bytes are gathered and written where something has to wait for them.

    Args:
        reply: What to send.
        envelope: Keys that every chunk has unless the script gives them.
        reader: Tells when the client has left.
        writer: The connection.
    """

    def __init__(
        self,
        reply: Reply,
        envelope: Mapping[str, Any],
        reader: Reader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._reply = reply
        self._envelope = envelope
        self._reader = reader
        self._writer = writer
        self._pending: list[bytes] = []
        self._head_sent = not reply.framed

    async def send(self) -> bool:
        """Send the reply and return whether it was sent whole (False: it was cut, as scripted).

        Raises:
            ClientGoneError: the client left in the middle.
        """
        try:
            for step in self._reply.steps:
                if isinstance(step, Cut):
                    await self._cut(step)
                    return False
                await self._take(step)
            if self._reply.framed:
                self._put_head()
                self._pending.append(b"0\r\n\r\n")
            await self._flush()
        except ConnectionError as error:
            raise ClientGoneError from error
        return True

    async def _take(self, step: dict[str, Any] | bytes | Comment | Pause | Gate) -> None:
        match step:
            case Pause(seconds):
                await self._flush()
                await self._hold(asyncio.sleep(seconds))
            case Gate():
                await self._flush()
                await self._hold(_opened(step.arrive()))
            case Comment(text):
                self._put(f": {text}\n\n".encode())
            case bytes():
                self._put(step)
            case _:
                self._put(b"data: " + json.dumps(self._enveloped(step)).encode() + b"\n\n")

    def _enveloped(self, event: dict[str, Any]) -> dict[str, Any]:
        return {**self._envelope, **event} if "choices" in event else event

    def _put(self, data: bytes) -> None:
        self._put_head()
        if self._reply.framed and data:
            data = b"%x\r\n%b\r\n" % (len(data), data)
        self._pending.append(data)

    def _put_head(self) -> None:
        if self._head_sent:
            return
        self._head_sent = True
        status = self._reply.status
        phrase = HTTPStatus(status).phrase if status in set(HTTPStatus) else "Scripted"
        fields = {**self._reply.headers, "Transfer-Encoding": "chunked"}
        lines = [f"HTTP/1.1 {status} {phrase}", *(f"{k}: {v}" for k, v in fields.items())]
        self._pending.append("\r\n".join([*lines, "", ""]).encode("latin-1"))

    async def _flush(self) -> None:
        if self._reader.gone.is_set():
            raise ClientGoneError
        self._writer.write(b"".join(self._pending))
        self._pending.clear()
        await self._writer.drain()

    async def _hold(self, what: Coroutine[Any, Any, None]) -> None:
        waiting = asyncio.ensure_future(what)
        leaving = asyncio.ensure_future(self._reader.gone.wait())
        try:
            await asyncio.wait({waiting, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
            leaving.cancel()
        if self._reader.gone.is_set():
            raise ClientGoneError

    async def _cut(self, step: Cut) -> None:
        # Everything before the cut must have left this process, for a reset drops what has not.
        self._writer.transport.set_write_buffer_limits(0)
        await self._flush()
        if step.reset:
            connection = self._writer.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            self._writer.transport.abort()


async def _opened(gate: Future[None]) -> None:
    # Many replies share the gate: one that gives up must not cancel it for the others.
    await asyncio.shield(asyncio.wrap_future(gate))
