"""Running user code in a task of its own, with an end that user code cannot put off."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from typing import Any

from osmosis_ai.rollout.backend.turns import Turns

_log = logging.getLogger(__name__)

# How long cancelled code may take to unwind before its end is no longer waited for.
GRACE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Returned[T]:
    """The code returned in time."""

    value: T


@dataclass(frozen=True, slots=True)
class Raised:
    """The code raised in time; a CancelledError here is the code's own."""

    error: BaseException


class Cut(Enum):
    """The code was ended from outside."""

    EXPIRED = auto()
    STOPPED = auto()


type Ending[T] = Returned[T] | Raised | Cut


class Supervisor:
    """Runs user code and keeps an eye on what outlives its end. For use on one event loop."""

    def __init__(self) -> None:
        self._stragglers: dict[asyncio.Task[Any], str] = {}

    def straggles(self, rollout_id: str) -> bool:
        """Tell whether code of this rollout still runs though the rollout has ended."""
        return rollout_id in self._stragglers.values()

    async def close(self) -> None:
        """Close the code that outlived its end, where it waits, and give it a second to unwind."""
        if not self._stragglers:
            return
        for task in self._stragglers:
            task.cancel()
        await asyncio.wait(self._stragglers, timeout=GRACE_SECONDS)

    async def run[T](
        self,
        code: Callable[[], Coroutine[Any, Any, T]],
        *,
        rollout_id: str,
        stop: "asyncio.Future[None]",
        seconds: float | None = None,
        turns: Turns | None = None,
    ) -> Ending[T]:
        """Run `code` in a task of its own and tell how it ended.

        Whatever it raises, `SystemExit` and `KeyboardInterrupt` too, is a value here. Code that
        is late by the clock has expired, even if it was not there to be interrupted. Code that
        does not unwind within a second of its cancellation is left behind: it stays referenced,
        its end is logged, and a further cancellation (such as the event loop's end) closes it.

        Args:
            code: Makes the coroutine; called in the new task.
            rollout_id: The rollout that it belongs to, for logs.
            stop: Ends the code when it is done.
            seconds: The budget; with none left the code is not started. None is unbounded.
            turns: What to go on by afterwards, where very many may end in the same moment.

        Raises:
            asyncio.CancelledError: the calling task was cancelled; so was the code.
        """
        if stop.done():
            return Cut.STOPPED
        if seconds is not None and seconds <= 0:
            return Cut.EXPIRED
        loop = asyncio.get_running_loop()
        deadline = None if seconds is None else loop.time() + seconds
        work = _Work(code)
        # Begun at once: code that awaits nothing is through before anything has to wait for it.
        name = f"rollout {rollout_id}"
        task = asyncio.Task(work.settle(), loop=loop, name=name, eager_start=True)
        try:
            if not task.done():
                await work.wait(stop, deadline, turns)
            elif turns is not None:
                await turns.take()
        finally:
            finished = task.done()
            if not finished:
                await self._unwind(task, work, rollout_id)
        if stop.done():
            return Cut.STOPPED
        if not finished or (deadline is not None and work.ended_at > deadline):
            return Cut.EXPIRED
        # Cancelled before its first step, by somebody who cancels all tasks.
        return Raised(asyncio.CancelledError()) if task.cancelled() else task.result()

    async def _unwind(self, task: asyncio.Task[Any], work: "_Work[Any]", rollout_id: str) -> None:
        task.cancel()
        try:
            await asyncio.wait({task}, timeout=GRACE_SECONDS)
        finally:
            if not task.done():
                self._leave_behind(task, work, rollout_id)

    def _leave_behind(self, task: asyncio.Task[Any], work: "_Work[Any]", rollout_id: str) -> None:
        _log.warning("Rollout %s has ended, but its code ignores the cancellation.", rollout_id)
        work.abandoned = True
        self._stragglers[task] = rollout_id
        task.add_done_callback(self._drop_late_result)

    def _drop_late_result(self, task: asyncio.Task[Any]) -> None:
        rollout_id = self._stragglers.pop(task)
        _log.warning("Late code of rollout %s has ended; its result is dropped.", rollout_id)


class _Work[T]:
    """Drives a coroutine as `await` does, but can be told to end it at the next cancellation."""

    def __init__(self, code: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._code = code
        self.abandoned = False
        self.ended_at = 0.0
        self._loop = asyncio.get_running_loop()
        self._tell_end: Callable[[], None] | None = None

    async def wait(
        self, stop: "asyncio.Future[None]", deadline: float | None, turns: Turns | None
    ) -> None:
        """Wait until the code has ended, `stop` is done, or the loop's clock shows `deadline`.

        Args:
            stop: Ends the wait when it is done.
            deadline: Ends the wait, too; None never does.
            turns: What to go on by once the code has ended.
        """
        # As asyncio.wait does, in fewer steps of the loop: thousands may end in the same moment.
        waiter: asyncio.Future[None] = self._loop.create_future()
        wake = partial(_wake, waiter)
        self._tell_end = wake if turns is None else partial(turns.admit, waiter)
        stop.add_done_callback(wake)
        timer = None if deadline is None else self._loop.call_at(deadline, wake)
        try:
            await waiter
        finally:
            stop.remove_done_callback(wake)
            if timer is not None:
                timer.cancel()

    async def settle(self) -> Returned[T] | Raised:
        # SystemExit and KeyboardInterrupt would leave the task through the event loop and end the
        # whole process; a rollout's code ends its rollout only.
        try:
            return Returned(await self)
        except BaseException as error:
            return Raised(error)
        finally:
            self.ended_at = self._loop.time()
            if self._tell_end is not None:
                self._tell_end()

    def __await__(self) -> Generator[Any, Any, T]:
        coroutine = self._code()
        resume: Callable[[], Any] = partial(coroutine.send, None)
        while True:
            try:
                awaited = resume()
            except StopIteration as end:
                returned: T = end.value
                return returned
            try:
                resume = partial(coroutine.send, (yield awaited))
            except BaseException as error:
                if self.abandoned:
                    # Code that swallowed one cancellation would swallow the next one as well, and
                    # an event loop that ends would wait for it without end.
                    coroutine.close()
                    raise
                resume = partial(coroutine.throw, error)


def _wake(waiter: "asyncio.Future[None]", *_: object) -> None:
    if not waiter.done():
        waiter.set_result(None)
