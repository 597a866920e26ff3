"""Calls after a fixed delay, for very many that mostly never come due."""

import asyncio
from collections import deque
from collections.abc import Callable

# How many calls one step of the loop makes: very many that are due in the same moment would keep it
# from everything else.
_AT_ONCE = 8


class Later:
    """Calls back after one delay, always the same: one timer of the event loop serves all.

    A timer of its own for each lease, poll and result would cost more than the answers do.
    """

    def __init__(self, delay_sec: float) -> None:
        self._delay_sec = delay_sec
        self._loop = asyncio.get_running_loop()
        self._line: deque[Call] = deque()
        self._is_timed = False

    def call[*P](self, function: Callable[[*P], object], *args: *P) -> "Call":
        """Call `function` after the delay, unless the returned call is cancelled."""
        self._drop_cancelled()
        call = Call(self._loop.time() + self._delay_sec, function, args)
        self._line.append(call)
        if not self._is_timed:
            self._set_timer()
        return call

    def _look_at_clock(self) -> None:
        now = self._loop.time()
        for _ in range(_AT_ONCE):
            self._drop_cancelled()
            if not self._line or self._line[0].due > now:
                break
            # On its own, so that an error concerns nobody else.
            self._loop.call_soon(self._line.popleft().make)
        self._set_timer()

    def _drop_cancelled(self) -> None:
        while self._line and self._line[0].is_cancelled:
            self._line.popleft()

    def _set_timer(self) -> None:
        self._is_timed = bool(self._line)
        if self._is_timed:
            self._loop.call_at(self._line[0].due, self._look_at_clock)


class Call:
    """A call that is due at a time of the event loop's clock."""

    __slots__ = ("_args", "_function", "due")

    def __init__(
        self, due: float, function: Callable[..., object], args: tuple[object, ...]
    ) -> None:
        self.due = due
        self._function: Callable[..., object] | None = function
        self._args = args

    @property
    def is_cancelled(self) -> bool:
        """Whether it is not made any more."""
        return self._function is None

    def cancel(self) -> None:
        """Do not call, and keep nothing alive for it."""
        self._function, self._args = None, ()

    def make(self) -> None:
        """Call, unless it was cancelled."""
        if self._function is not None:
            self._function(*self._args)
