"""A watch on the event loop: how long it stands still, and which rollout's code holds it."""

import asyncio
import logging
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

# The loop is looked at this often, in seconds, and a longer standstill than this is worth a line.
_BEAT_SEC = 0.25
NOTABLE_SEC = 0.5

_log = logging.getLogger(__name__)

current_rollout: ContextVar[str | None] = ContextVar("osmosis_current_rollout", default=None)
"""The id of the rollout that a task works for; tasks that it starts inherit it."""


@contextmanager
def watched_loop() -> Generator[None]:
    """Log each standstill of the running loop while inside, with the rollout that is to blame.

    Code that does not await cannot be interrupted, but it can be named: a thread looks at what the
    loop does while it stands still.
    """
    watch = _LoopWatch()
    thread = threading.Thread(target=watch.look, name="osmosis-loop-watch", daemon=True)
    thread.start()
    watch.beat()
    try:
        yield
    finally:
        watch.close()


class _LoopWatch:
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._due = self._loop.time()
        self._culprit: str | None = None
        self._closed = threading.Event()
        self._timer: asyncio.TimerHandle | None = None

    def beat(self) -> None:
        """Measure on the loop how late it is."""
        late = self._loop.time() - self._due
        culprit, self._culprit = self._culprit, None
        if late > NOTABLE_SEC:
            _log.warning(
                "The event loop stood still for %.1f s, held up by %s.",
                late,
                culprit or "something unknown",
            )
        self._due = self._loop.time() + _BEAT_SEC
        self._timer = self._loop.call_at(self._due, self.beat)

    def look(self) -> None:
        """Find out in a thread who holds the loop when it is late."""
        while not self._closed.wait(_BEAT_SEC):
            late = self._loop.time() - self._due
            if late > NOTABLE_SEC and self._culprit is None:
                self._culprit = self._find_culprit()
                _log.warning(
                    "The event loop has stood still for %.1f s, held up by %s: nothing else can go "
                    "on meanwhile. Call what blocks with asyncio.to_thread().",
                    late,
                    self._culprit,
                )

    def close(self) -> None:
        self._closed.set()
        if self._timer is not None:
            self._timer.cancel()

    def _find_culprit(self) -> str:
        task = asyncio.current_task(self._loop)
        rollout_id = None if task is None else task.get_context().get(current_rollout)
        who = "the server" if rollout_id is None else f"rollout {rollout_id}"
        frame = sys._current_frames().get(self._loop_thread)  # pyright: ignore[reportPrivateUsage]
        if frame is None:
            return who
        code = frame.f_code
        return f"{who} in {code.co_qualname} ({Path(code.co_filename).name}:{frame.f_lineno})"
