"""A first-come-first-served limit on what runs at the same time."""

import asyncio
from collections import deque


class Slots:
    """Up to `limit` slots; None is unlimited. For use on one event loop."""

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.taken = 0
        self._line: deque[asyncio.Future[None]] = deque()

    @property
    def waiting(self) -> int:
        """How many callers stand in line."""
        return len(self._line)

    async def acquire(self, *, stop: "asyncio.Future[None]", seconds: float | None = None) -> bool:
        """Take a slot, waiting in line for it.

        Args:
            stop: Ends the waiting when it is done.
            seconds: How long to wait at most; None waits on.

        Returns:
            Whether a slot was taken, to be given back with `release`.
        """
        if stop.done() or (seconds is not None and seconds <= 0):
            return False
        if self._free() and not self._line:
            self.taken += 1
            return True
        ticket: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append(ticket)
        try:
            await asyncio.wait({ticket, stop}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._give_up(ticket)
            raise
        if ticket.done() and not stop.done():
            return True
        self._give_up(ticket)
        return False

    def release(self) -> None:
        """Give a slot back to the first in line."""
        self.taken -= 1
        while self._line and self._free():
            self.taken += 1
            self._line.popleft().set_result(None)

    def _free(self) -> bool:
        return self.limit is None or self.taken < self.limit

    def _give_up(self, ticket: "asyncio.Future[None]") -> None:
        # The slot may have been handed over in the very tick in which the waiting ended.
        if ticket.done():
            self.release()
        else:
            self._line.remove(ticket)
