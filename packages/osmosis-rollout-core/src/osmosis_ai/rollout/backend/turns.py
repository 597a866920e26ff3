"""Turns of the event loop, shared out to work that piles up."""

import asyncio
from collections import deque

__all__ = ["Turns"]


class Turns:
    """Lets at most `per_turn` callers go on in one turn of the event loop, first come first served.

    Thousands of tasks that become ready in the same moment run in one turn otherwise, and nothing
    else is answered before the last of them has. Where nothing piles up, nobody waits. For use on
    one event loop.
    """

    # Of work of a millisecond or less: a turn then stays short beside what it costs by itself.
    def __init__(self, per_turn: int = 8) -> None:
        self._per_turn = per_turn
        self._left = per_turn
        self._is_counting = False
        self._line: deque[asyncio.Future[None]] = deque()

    async def take(self) -> None:
        """Go on at once, or in the first later turn that has room."""
        if not self._has_room():
            ticket: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._line.append(ticket)
            await ticket

    def admit(self, ticket: "asyncio.Future[None]") -> None:
        """Make a future done at once, or in the first later turn that has room."""
        if not self._has_room():
            self._line.append(ticket)
        elif not ticket.done():
            ticket.set_result(None)

    def _has_room(self) -> bool:
        if not self._is_counting:
            self._is_counting = True
            asyncio.get_running_loop().call_soon(self._next_turn)
        if not self._left or self._line:
            return False
        self._left -= 1
        return True

    def _next_turn(self) -> None:
        self._left = self._per_turn
        while self._line and self._left:
            ticket = self._line.popleft()
            if not ticket.done():  # else its task was cancelled
                ticket.set_result(None)
                self._left -= 1
        self._is_counting = bool(self._line) or self._left < self._per_turn
        if self._is_counting:
            asyncio.get_running_loop().call_soon(self._next_turn)
