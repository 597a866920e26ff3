"""Polling delivery: the lease that keeps a rollout alive while its client asks for the result."""

import asyncio
import hmac
import secrets
from collections.abc import Callable, Generator
from contextlib import contextmanager

from osmosis_ai.rollout.server._later import Call, Later
from osmosis_ai.rollout.server._settings import Settings
from osmosis_ai.rollout.types import RolloutStatus

# News of progress waits this long for more of it: a rollout that starts and ends at once is told of
# in one answer.
_LINGER_SEC = 0.1


class LeaseTimers:
    """The delays that the leases of one event loop share.

    Attributes:
        expiry: How long a lease lives without a poll.
        poll: How long a poll waits for news.
        linger: How long news of progress waits for more.
    """

    def __init__(self, settings: Settings) -> None:
        self.expiry = Later(settings.polling_lease_timeout_sec)
        self.poll = Later(settings.result_wait_timeout_sec)
        self.linger = Later(min(_LINGER_SEC, settings.result_wait_timeout_sec))


class Lease:
    """One client's claim on a rollout: a token, the status it was told last, and a deadline.

    An unarmed lease never expires; the first poll arms it.

    Attributes:
        token: The secret that result polls show.
        told: The status that the client knows; the answer to its POST said `queued`.
    """

    def __init__(
        self, timeout_sec: float, timers: LeaseTimers, on_expiry: Callable[[], None]
    ) -> None:
        self.token = secrets.token_urlsafe(24)
        self.told = RolloutStatus.QUEUED
        self._timeout_sec = timeout_sec
        self._timers = timers
        self._on_expiry = on_expiry
        self._loop = asyncio.get_running_loop()
        self._deadline = 0.0
        self._timer: Call | asyncio.TimerHandle | None = None
        self._ended = False
        self._open_polls = 0
        # Each with the call that ends it once news has had its time, if there is news for it.
        self._waiters: dict[asyncio.Future[None], Call | None] = {}

    def matches(self, token: str) -> bool:
        """Tell whether `token` is this lease's, in constant time."""
        return hmac.compare_digest(token.encode(), self.token.encode())

    def renew(self) -> None:
        """Count the time to the expiry from now on."""
        self._deadline = self._loop.time() + self._timeout_sec
        if self._timer is None and not self._ended:
            self._timer = self._timers.expiry.call(self._look_at_clock)

    @contextmanager
    def polling(self) -> Generator[None]:
        """Hold the lease for the length of a poll: it is renewed at both ends."""
        self.renew()
        self._open_polls += 1
        try:
            yield
        finally:
            self._open_polls -= 1
            self.renew()

    async def wait(self, *, is_news: bool) -> None:
        """Wait until the lease is woken, for so long as a poll may take.

        Args:
            is_news: Whether there is something to tell already, though perhaps not all of it.
        """
        waiter = self._loop.create_future()
        # News never waits longer than a poll, so one timer is enough for it.
        timer = (self._timers.linger if is_news else self._timers.poll).call(_release, waiter)
        self._waiters[waiter] = timer if is_news else None
        try:
            await waiter
        finally:
            timer.cancel()
            if (lingering := self._waiters.pop(waiter)) is not None:
                lingering.cancel()

    def wake(self) -> None:
        """Let every waiting poll answer."""
        for waiter in self._waiters:
            _release(waiter)

    def follow(self, status: RolloutStatus) -> None:
        """Let waiting polls answer with a new status; a final one ends the lease."""
        if status.is_final:
            self._end()
            self.wake()
        elif status is not self.told:
            # Each for itself: who polls again meanwhile has been told already.
            for waiter, lingering in self._waiters.items():
                if lingering is None:
                    self._waiters[waiter] = self._timers.linger.call(_release, waiter)

    def _end(self) -> None:
        self._ended = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_at_clock(self) -> None:
        # Renewing only moves the deadline, so that a poll costs no timer of its own here.
        self._timer = None
        if self._open_polls:
            self.renew()
        elif self._deadline > self._loop.time():
            self._timer = self._loop.call_at(self._deadline, self._look_at_clock)
        else:
            self._on_expiry()


def _release(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
