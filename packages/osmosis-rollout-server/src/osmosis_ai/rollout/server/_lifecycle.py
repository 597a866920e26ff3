"""The app's life: services per event loop, signals, and the order in which things close."""

import asyncio
import logging
import signal
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from types import FrameType
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from fastapi import FastAPI

from osmosis_ai.rollout.backend import ExecutionBackend
from osmosis_ai.rollout.policy import close_policy_clients
from osmosis_ai.rollout.server._collector import patient_collector
from osmosis_ai.rollout.server._service import Service
from osmosis_ai.rollout.server._watch import watched_loop
from osmosis_ai.rollout.threads import PatientExecutor

type Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[Mapping[str, Any] | None]]
"""What a FastAPI app takes as its `lifespan`."""

# How long the backend, the connections to the policy, and calls in threads may take to end.
_CLOSE_SEC = 5.0

_log = logging.getLogger(__name__)


class Services:
    """An app's services, one per event loop that serves it."""

    def __init__(self, make: Callable[[], Service]) -> None:
        self._make = make
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, Service] = WeakKeyDictionary()
        self._ended: WeakSet[asyncio.AbstractEventLoop] = WeakSet()

    def begin(self) -> Service:
        """Return the running loop's service, which admits rollouts, also after an earlier end."""
        loop = asyncio.get_running_loop()
        if loop in self._ended:
            self._ended.discard(loop)
            self._by_loop.pop(loop, None)
        return self.current()

    def current(self) -> Service:
        """Return the running loop's service; one is made where there is none."""
        loop = asyncio.get_running_loop()
        service = self._by_loop.get(loop)
        if service is None:
            service = self._by_loop[loop] = self._make()
            if loop in self._ended:
                service.close()
        return service

    def end(self) -> None:
        """Forget the running loop's service: the next one admits nothing until `begin`."""
        loop = asyncio.get_running_loop()
        self._ended.add(loop)
        self._by_loop.pop(loop, None)


class _Users[K]:
    """Counts who uses a thing that several apps may share; the last one closes it."""

    def __init__(self) -> None:
        self._counts: WeakKeyDictionary[K, int] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def enter(self, thing: K) -> None:
        with self._lock:
            self._counts[thing] = self._counts.get(thing, 0) + 1

    def leave(self, thing: K) -> bool:
        """Return whether nobody uses it any more."""
        with self._lock:
            self._counts[thing] -= 1
            return self._counts[thing] == 0


_backends: _Users[ExecutionBackend] = _Users()
_loops: _Users[asyncio.AbstractEventLoop] = _Users()


def make_lifespan(
    services: Services, backend: ExecutionBackend, user_lifespan: Lifespan | None
) -> Callable[[FastAPI], AbstractAsyncContextManager[Mapping[str, Any]]]:
    """Return the app's lifespan: the user's resources open first, and close after the rollouts."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[Mapping[str, Any]]:
        service = services.begin()
        # A call in one of asyncio's own threads that never returns would hold up the exit.
        asyncio.get_running_loop().set_default_executor(PatientExecutor(_CLOSE_SEC))
        try:
            user = (user_lifespan or _no_lifespan)(app)
            async with user as state, _serving(service, backend):
                yield state or {}
        finally:
            services.end()
            await service.abandon()

    return lifespan


@asynccontextmanager
async def _no_lifespan(app: FastAPI) -> AsyncGenerator[None]:
    yield


@asynccontextmanager
async def _serving(service: Service, backend: ExecutionBackend) -> AsyncGenerator[None]:
    loop = asyncio.get_running_loop()
    _backends.enter(backend)
    _loops.enter(loop)
    with _told_of_signals(service.close), watched_loop(), patient_collector():
        try:
            yield
        finally:
            await service.drain()
            if _backends.leave(backend):
                await _close("backend", backend.shutdown())
            if _loops.leave(loop):
                await _close("policy client", close_policy_clients())


async def _close(what: str, closing: Awaitable[None]) -> None:
    task = asyncio.ensure_future(closing)
    await asyncio.wait({task}, timeout=_CLOSE_SEC)
    if not task.done():
        _log.error("The %s did not close within %g s.", what, _CLOSE_SEC)
        task.cancel()
    elif not task.cancelled() and (error := task.exception()) is not None:
        _log.error("The %s did not close.", what, exc_info=error)


@contextmanager
def _told_of_signals(on_signal: Callable[[], None]) -> Generator[None]:
    """Call `on_signal` on SIGINT and SIGTERM, before whoever handles them now.

    Servers close their sockets at the signal but end the lifespan only after the last open
    request, and a long poll is one. Where nobody handles a signal, it is left as it is.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    handlers: dict[int, Callable[[int, FrameType | None], Any]] = {}

    def handle(signum: int, frame: FrameType | None) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(on_signal)
        handlers[signum](signum, frame)

    for signum in (signal.SIGINT, signal.SIGTERM):
        handler = signal.getsignal(signum)
        if callable(handler):
            handlers[signum] = handler
            signal.signal(signum, handle)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            if signal.getsignal(number) is handle:
                signal.signal(number, handler)
