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

    def call(self, function: Callable[[], object]) -> "Call":
        """Call `function` after the delay, unless the returned call is cancelled."""
        call = Call(function, self._loop.time() + self._delay_sec)
        self._line.append(call)
        if len(self._line) == 1:
            self._loop.call_at(call.due, self._look_at_clock)
        return call

    def _look_at_clock(self) -> None:
        now = self._loop.time()
        made = 0
        while self._line and (self._line[0].function is None or self._line[0].due <= now):
            if made == _AT_ONCE:
                break
            function = self._line.popleft().function
            if function is not None:
                # On its own, so that an error concerns nobody else.
                self._loop.call_soon(function)
                made += 1
        if self._line:
            self._loop.call_at(self._line[0].due, self._look_at_clock)


class Call:
    """A call that is due at a time of the event loop's clock."""

    __slots__ = ("due", "function")

    def __init__(self, function: Callable[[], object], due: float) -> None:
        self.function: Callable[[], object] | None = function
        self.due = due

    def cancel(self) -> None:
        """Do not call, and keep nothing alive for it."""
        self.function = None
