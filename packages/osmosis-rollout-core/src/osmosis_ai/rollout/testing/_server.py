"""An asyncio server on loopback, in a thread of its own."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Final

from osmosis_ai.rollout.testing._http import Reader

# Many rollouts that start together connect together; the kernel caps this at its own limit.
_BACKLOG: Final = 4096

type Serve = Callable[[Reader, asyncio.StreamWriter], Awaitable[None]]
"""Talks to one connection until it is done with it."""


class ServerThread:
    """Runs `serve` for every connection to a free port of 127.0.0.1 until it is stopped.

    Blocking code in the starting thread, or a busy event loop there, never delays the server.
    """

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self._connections: set[asyncio.Task[None]] = set()
        self._thread: threading.Thread | None = None
        self._stop: Callable[[], object] = lambda: None

    def start(self) -> int:
        """Start listening and return the port.

        Raises:
            OSError: no port could be opened.
        """
        ready: Future[int] = Future()
        self._thread = threading.Thread(
            target=self._run, args=(ready,), name="osmosis-testing-server", daemon=True
        )
        self._thread.start()
        return ready.result()

    def stop(self) -> None:
        """Break every connection, close the port and wait for the thread's end."""
        if self._thread is not None:
            self._stop()
            self._thread.join()
            self._thread = None

    def _run(self, ready: Future[int]) -> None:
        try:
            asyncio.run(self._listen(ready))
        except OSError as error:
            if ready.done():
                raise
            ready.set_exception(error)

    async def _listen(self, ready: Future[int]) -> None:
        loop = asyncio.get_running_loop()
        stopped = asyncio.Event()
        self._stop = lambda: loop.call_soon_threadsafe(stopped.set)
        server = await loop.create_server(
            lambda: asyncio.StreamReaderProtocol(reader := Reader(), self._accept(reader)),
            "127.0.0.1",
            0,
            backlog=_BACKLOG,
        )
        ready.set_result(server.sockets[0].getsockname()[1])
        await stopped.wait()
        server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _accept(
        self, reader: Reader
    ) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]:
        def connected(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.get_running_loop().create_task(self._converse(reader, writer))
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)

        return connected

    async def _converse(self, reader: Reader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(ConnectionError):
                await self._serve(reader, writer)
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
        except asyncio.CancelledError:
            writer.transport.abort()
            with suppress(ConnectionError):
                await writer.wait_closed()
            raise
