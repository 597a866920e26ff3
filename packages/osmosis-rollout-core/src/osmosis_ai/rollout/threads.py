"""Threads that nothing waits for at the exit, and that user code cannot keep from our own work.

A workflow that fills asyncio's own threads with calls that never return would otherwise keep every
other rollout from its files, and the process from its exit.
"""

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Any, override
from weakref import WeakKeyDictionary

# Threads for files of our own, shared by all event loops of the process. Few are enough, and the
# fewer there are, the less they contend with the loops for the interpreter.
_FILE_THREADS = 4
# How many jobs one step of a loop gives to the threads, and how many results it takes. Each sets
# something in motion, and all of very many at once would keep the loop from everything else.
_AT_ONCE = 8
# How long a loop stands aside for each of its jobs. Beside a busy loop, a thread has to win the
# interpreter back after each of its calls into the system, which costs several times as much as the
# calls do.
_PATIENCE_SEC = 0.0005
# After it stood aside in vain, a loop does not do so again for this many times as long: jobs that
# take longer cost it a twentieth of its time at most.
_PAUSE = 20


def off_loop[**P, T](
    function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> "asyncio.Future[T]":
    """Call `function` in a thread that user code does not share; for use on an event loop.

    The loop gives way to a call that takes less than half a millisecond, as quick files do, and
    goes on beside any other. The call cannot be cancelled: giving up the future leaves it to
    itself.

    Returns:
        A future of the running loop with the function's result.
    """
    loop = asyncio.get_running_loop()
    return _jobs_of(loop).take(loop, partial(function, *args, **kwargs))


class _LoopJobs:
    """Gives the jobs of one event loop to the threads, and brings their results back."""

    def __init__(self) -> None:
        # It must not refer to the loop, or it would keep it alive after its end.
        self._jobs: deque[Callable[[], None]] = deque()
        self._results: deque[tuple[asyncio.Future[Any], Any, BaseException | None]] = deque()
        self._lock = threading.Lock()
        self._announced = False
        self._stand_aside_from = 0.0

    def take[T](
        self, loop: asyncio.AbstractEventLoop, function: Callable[[], T]
    ) -> "asyncio.Future[T]":
        future: asyncio.Future[T] = loop.create_future()

        def job() -> None:
            try:
                result = function()
            except BaseException as error:  # what it raises, SystemExit too, is for the caller
                self._bring_back(future, None, error)
            else:
                self._bring_back(future, result, None)

        # Not at once: what comes in the same step of the loop goes out together.
        if not self._jobs:
            loop.call_soon(self._give_out, loop)
        self._jobs.append(job)
        return future

    def _give_out(self, loop: asyncio.AbstractEventLoop) -> None:
        batch = deque(self._jobs.popleft() for _ in range(min(_AT_ONCE, len(self._jobs))))
        if self._jobs:
            loop.call_soon(self._give_out, loop)
        try:
            if loop.time() >= self._stand_aside_from:
                self._stand_aside(loop, batch)
        finally:  # Ctrl-C comes while the loop waits, and the loop may go on afterwards
            for job in _emptied(batch):
                _submit(job)

    def _stand_aside(
        self, loop: asyncio.AbstractEventLoop, batch: deque[Callable[[], None]]
    ) -> None:
        """Let one thread do the jobs, as many as it gets done in a moment; nothing else runs."""
        patience = _PATIENCE_SEC * len(batch)
        finished = threading.Lock()
        finished.acquire()

        def serve() -> None:
            for job in _emptied(batch):
                job()
            finished.release()

        with self._lock:
            self._announced = True  # nothing need wake up the loop: it looks by itself
        try:
            _submit(serve)
            if not finished.acquire(timeout=patience):
                self._stand_aside_from = loop.time() + _PAUSE * patience
        finally:
            self._hand_out(loop)

    def _bring_back(
        self, future: asyncio.Future[Any], result: Any, error: BaseException | None
    ) -> None:
        self._results.append((future, result, error))
        if self._is_news():
            loop = future.get_loop()
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(self._hand_out, loop)

    def _is_news(self) -> bool:
        with self._lock:
            announced, self._announced = self._announced, True
        return not announced

    def _hand_out(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            self._announced = False
        for _ in range(_AT_ONCE):
            if not self._results:
                return
            _settle(*self._results.popleft())
        if self._is_news():
            loop.call_soon(self._hand_out, loop)


def _emptied[T](items: deque[T]) -> Iterator[T]:
    """Take the items out one by one; several threads may share them."""
    while items:
        try:
            item = items.popleft()
        except IndexError:  # another thread has just taken the last one
            return
        yield item


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
        self._unfinished = 0
        self._threads: list[threading.Thread] = []

    def submit(self, job: Callable[[], None]) -> None:
        """Raise RuntimeError if there is no thread, and the system gives none."""
        with self._lock:
            if len(self._threads) < min(self._unfinished + 1, self._limit):
                self._start_thread()
            self._unfinished += 1
        self._jobs.put(job)

    def _start_thread(self) -> None:
        name = f"{self._name}-{len(self._threads)}"
        thread = threading.Thread(target=self._serve, name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            if not self._threads:
                raise
        else:
            self._threads.append(thread)

    def close(self) -> list[threading.Thread]:
        """Let each thread end after the jobs that were submitted; return them."""
        for _ in self._threads:
            self._jobs.put(None)
        return self._threads

    def _serve(self) -> None:
        while True:
            job = self._jobs.get()
            if job is None:
                return
            job()
            del job  # or an idle thread would keep what it did last alive
            with self._lock:
                self._unfinished -= 1


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
            RuntimeError: the pool was shut down, or no thread can be started.
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

        self._pool.submit(job)
        self._waiting.add(future)
        future.add_done_callback(self._waiting.discard)
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


_jobs_by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopJobs] = WeakKeyDictionary()
_jobs_by_loop_lock = threading.Lock()
_file_threads = _Threads(_FILE_THREADS, "osmosis-files")


def _jobs_of(loop: asyncio.AbstractEventLoop) -> _LoopJobs:
    with _jobs_by_loop_lock:
        if loop not in _jobs_by_loop:
            # A result that came after a loop's end would keep it: nobody takes the result.
            for ended in [known for known in _jobs_by_loop if known.is_closed()]:
                del _jobs_by_loop[ended]
            _jobs_by_loop[loop] = _LoopJobs()
        return _jobs_by_loop[loop]


def _submit(job: Callable[[], None]) -> None:
    try:
        _file_threads.submit(job)
    except RuntimeError:  # not even one thread: a loop that works by itself is better than none
        job()


def _start_afresh() -> None:
    # A forked process has none of its parent's threads.
    global _file_threads, _jobs_by_loop_lock
    _file_threads, _jobs_by_loop_lock = _Threads(_FILE_THREADS, "osmosis-files"), threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_afresh)
