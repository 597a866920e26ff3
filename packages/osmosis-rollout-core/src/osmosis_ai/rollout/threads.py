"""Threads that nothing waits for at the exit, and that user code cannot keep from our own work.

A workflow that fills asyncio's own threads with calls that never return would otherwise keep every
other rollout from its files, and the process from its exit.
"""

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, override
from weakref import WeakKeyDictionary

# Threads for files of our own, shared by all event loops of the process. Few are enough, and the
# fewer there are, the less they contend with the loops for the interpreter.
_FILE_THREADS = 4
# How many results one step of a loop takes. Each sets something in motion, such as an answer, and
# all of very many at once would keep the loop from everything else.
_RESULTS_AT_ONCE = 8


def off_loop[**P, T](
    function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> "asyncio.Future[T]":
    """Call `function` in a thread that user code does not share; for use on an event loop.

    The call cannot be cancelled: giving up the future leaves it to itself.

    Returns:
        A future of the running loop with the function's result.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    outbox = _outbox(loop)

    def job() -> None:
        try:
            result = function(*args, **kwargs)
        except BaseException as error:  # what it raises, SystemExit too, is for the caller
            outbox.put(future, None, error)
        else:
            outbox.put(future, result, None)

    _file_threads.submit(job)
    return future


class _Outbox:
    """Brings results back to one event loop; what comes close together wakes it up once."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._results: deque[tuple[asyncio.Future[Any], Any, BaseException | None]] = deque()
        self._announced = False

    def put(self, future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
        self._results.append((future, result, error))
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._announce(self._loop.call_soon_threadsafe)

    def _announce(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        with self._lock:
            announced, self._announced = self._announced, True
        if not announced:
            call_soon(self._hand_out)

    def _hand_out(self) -> None:
        with self._lock:
            self._announced = False
        for _ in range(_RESULTS_AT_ONCE):
            if not self._results:
                return
            _settle(*self._results.popleft())
        self._announce(self._loop.call_soon)


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    elif isinstance(error, StopIteration):
        future.set_exception(RuntimeError("the function raised StopIteration"))
    else:
        future.set_exception(error)


class _Threads:
    """Serves jobs in order; a thread is started where none is idle, up to a limit."""

    def __init__(self, limit: int, name: str) -> None:
        self._limit = limit
        self._name = name
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0
        self._threads: list[threading.Thread] = []

    def submit(self, job: Callable[[], None]) -> None:
        self._jobs.put(job)
        with self._lock:
            if self._idle:
                self._idle -= 1
            elif len(self._threads) < self._limit:
                name = f"{self._name}-{len(self._threads)}"
                self._threads.append(threading.Thread(target=self._serve, name=name, daemon=True))
                self._threads[-1].start()

    def close(self) -> list[threading.Thread]:
        """Let each thread end after the jobs that were submitted; return them."""
        for _ in self._threads:
            self._jobs.put(None)
        return self._threads

    def _serve(self) -> None:
        while True:
            try:
                job = self._jobs.get_nowait()
            except Empty:
                with self._lock:
                    self._idle += 1
                job = self._jobs.get()
            if job is None:
                return
            job()
            del job  # or an idle thread would keep what it did last alive


class PatientExecutor(ThreadPoolExecutor):
    """A pool whose shutdown, and the process's exit, wait only so long for calls that hang.

    Args:
        patience_sec: How long a shutdown waits for running calls, in seconds.
    """

    def __init__(self, patience_sec: float) -> None:
        super().__init__()
        self._patience_sec = patience_sec
        # The base class is one because event loops take no other kind; its own threads, which the
        # interpreter waits for without end, are never started.
        self._pool = _Threads(min(32, (os.cpu_count() or 1) + 4), "osmosis-default")
        self._is_closed = False
        self._waiting: set[Future[Any]] = set()

    @override
    def submit[**P, T](
        self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> "Future[T]":
        """Call `fn` in a thread.

        Raises:
            RuntimeError: the pool was shut down.
        """
        if self._is_closed:
            msg = "cannot schedule new futures after shutdown"
            raise RuntimeError(msg)
        future: Future[T] = Future()

        def job() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:  # as the base class does: it is for the caller
                future.set_exception(error)
            else:
                future.set_result(result)

        self._waiting.add(future)
        future.add_done_callback(self._waiting.discard)
        self._pool.submit(job)
        return future

    @override
    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no further calls, and wait for the running ones as long as there is patience."""
        self._is_closed = True
        if cancel_futures:
            for future in list(self._waiting):
                future.cancel()
        threads = self._pool.close()
        give_up_at = time.monotonic() + self._patience_sec
        for thread in threads if wait else ():
            thread.join(max(0.0, give_up_at - time.monotonic()))


_outboxes: WeakKeyDictionary[asyncio.AbstractEventLoop, _Outbox] = WeakKeyDictionary()
_outboxes_lock = threading.Lock()
_file_threads = _Threads(_FILE_THREADS, "osmosis-files")


def _outbox(loop: asyncio.AbstractEventLoop) -> _Outbox:
    with _outboxes_lock:
        if loop not in _outboxes:
            _outboxes[loop] = _Outbox()
        return _outboxes[loop]


def _start_afresh() -> None:
    # A forked process has none of its parent's threads.
    global _file_threads, _outboxes_lock
    _file_threads, _outboxes_lock = _Threads(_FILE_THREADS, "osmosis-files"), threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_afresh)
