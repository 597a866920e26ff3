"""The outbox: deliveries on their way, a fixed number at a time, off the rollouts' own path."""

import asyncio
import logging
import random
import uuid
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol

from osmosis_ai.rollout.backend.turns import Turns
from osmosis_ai.rollout.server._posting import Answer, Target, post

WORKERS: Final = 64
"""How many attempts are made at the same time."""
CAPACITY: Final = 10_000
"""How many deliveries may be on their way before rollouts that want callbacks are refused."""
ATTEMPTS: Final = 5
LONGEST_WAIT_SEC: Final = 8.0

_FIRST_WAIT_SEC: Final = 0.5
_JITTER: Final = 0.2

_log = logging.getLogger(__name__)


class BodyMaker(Protocol):
    """Makes a delivery's body: the same bytes each time, so that what waits holds no copy."""

    def __call__(self, *, reduced: bool) -> bytes:
        """Return the body, or a smaller one for a peer that answers 413."""
        ...


@dataclass(eq=False, slots=True)
class Delivery:
    """One body for one peer, until it has arrived or is given up.

    Attributes:
        name: What it is, for logs.
        target: Where it goes.
        make_body: Makes the body.
        on_end: Called at the end, with the answer's body if it arrived.
        is_reduced: Whether the smaller body is sent.
        key: The `Idempotency-Key` of all its attempts.
        attempts: How many there were.
        problem: Why it has not arrived.
    """

    name: str
    target: Target
    make_body: BodyMaker
    on_end: Callable[[bytes | None], None]
    is_reduced: bool = False
    key: str = field(default_factory=lambda: uuid.uuid4().hex)
    attempts: int = 0
    problem: str = "there was no time"

    def body(self) -> bytes:
        """Return what is sent."""
        return self.make_body(reduced=self.is_reduced)

    def can_be_reduced(self) -> bool:
        """Tell whether there is a smaller body."""
        return not self.is_reduced and self.make_body(reduced=True) != self.body()

    def reduced(self) -> "Delivery":
        """Return a new delivery of the smaller body."""
        return Delivery(self.name, self.target, self.make_body, self.on_end, is_reduced=True)


def wait_before_retry(attempts: int, retry_after: float | None) -> float:
    """Return how many seconds to wait after so many attempts, the peer's wish included."""
    wait = max(_FIRST_WAIT_SEC * (1 << (attempts - 1)), retry_after or 0.0)
    return min(wait * random.uniform(1, 1 + _JITTER), LONGEST_WAIT_SEC)


class Outbox:
    """Sends deliveries. For use on one event loop.

    A delivery that waits for its next attempt occupies no worker, so that one dead peer does not
    hold up the others.
    """

    def __init__(self) -> None:
        self._ready: deque[Delivery] = deque()
        self._waiting: dict[Delivery, asyncio.TimerHandle] = {}
        self._open: set[Delivery] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._turns = Turns()
        self._workers = 0
        self._closed = False
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def is_full(self) -> bool:
        """Whether no more deliveries should be caused."""
        return len(self._open) >= CAPACITY

    def put(self, delivery: Delivery) -> None:
        """Take a delivery over; `on_end` is called in any case."""
        self._open.add(delivery)
        self._idle.clear()
        if self._closed:
            self._give_up(delivery)
        else:
            self._make_ready(delivery)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run what a delivery's end has caused; the outbox is not idle before it is done."""
        # In a context of its own: what is put in here comes out of rollouts' contexts.
        task = asyncio.get_running_loop().create_task(work, context=Context())
        self._tasks.add(task)
        self._idle.clear()
        task.add_done_callback(self._forget)

    async def flush(self, timeout_sec: float) -> None:
        """Wait until everything has arrived or is given up, `timeout_sec` at most."""
        if self._open:
            _log.info("Waiting for %d callback(s), %g s at most.", len(self._open), timeout_sec)
        try:
            async with asyncio.timeout(timeout_sec):
                await self._idle.wait()
        except TimeoutError:
            return

    def close(self) -> None:
        """Stop all attempts and give up what has not arrived."""
        self._closed = True
        for timer in self._waiting.values():
            timer.cancel()
        for task in self._tasks:
            task.cancel()
        for delivery in list(self._open):
            self._give_up(delivery)

    def _make_ready(self, delivery: Delivery) -> None:
        self._waiting.pop(delivery, None)
        self._ready.append(delivery)
        if self._workers < WORKERS:
            self._workers += 1
            self.spawn(self._work())

    async def _work(self) -> None:
        try:
            while self._ready and not self._closed:
                delivery = self._ready.popleft()
                await self._turns.take()
                await self._attempt(delivery)
        finally:
            self._workers -= 1

    async def _attempt(self, delivery: Delivery) -> None:
        delivery.attempts += 1
        delivery.problem = "the attempt was cut short"
        try:
            answer = await post(delivery.target, delivery.key, delivery.body())
        except Exception as error:
            # A boundary: one delivery's failure must not take the others along.
            _log.exception("The %s failed.", delivery.name)
            answer = Answer(problem=f"the server failed ({type(error).__name__})")
        delivery.problem = answer.problem
        if not answer.problem:
            self._end(delivery, answer.body)
        elif answer.status == 413 and delivery.can_be_reduced():
            self._reduce(delivery)
        elif answer.may_pass and delivery.attempts < ATTEMPTS:
            self._retry(delivery, answer)
        else:
            self._give_up(delivery)

    def _retry(self, delivery: Delivery, answer: Answer) -> None:
        wait = wait_before_retry(delivery.attempts, answer.retry_after)
        loop = asyncio.get_running_loop()
        self._waiting[delivery] = loop.call_later(wait, partial(self._make_ready, delivery))
        _log.debug("The %s waits %.1f s: %s.", delivery.name, wait, answer.problem)

    def _reduce(self, delivery: Delivery) -> None:
        _log.warning(
            "The %s is too large for its peer (%s): a smaller body follows, which says what it "
            "leaves out.",
            delivery.name,
            delivery.problem,
        )
        self._open.remove(delivery)
        self.put(delivery.reduced())

    def _give_up(self, delivery: Delivery) -> None:
        _log.error(
            "The %s was not delivered to %s in %d attempt(s): %s. The result can be polled as long "
            "as it is retained.",
            delivery.name,
            delivery.target.shown,
            delivery.attempts,
            delivery.problem,
        )
        self._end(delivery, None)

    def _end(self, delivery: Delivery, answer: bytes | None) -> None:
        delivery.on_end(answer)
        self._open.remove(delivery)
        self._look_idle()

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._look_idle()
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("The outbox failed.", exc_info=error)

    def _look_idle(self) -> None:
        if not self._open and not self._tasks:
            self._idle.set()
