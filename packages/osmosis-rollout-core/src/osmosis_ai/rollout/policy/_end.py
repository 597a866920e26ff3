"""The end of a rollout, which ends its calls to the policy on whatever event loop they run."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress

from osmosis_ai.rollout.context import RolloutContext
from osmosis_ai.rollout.policy._errors import PolicyError
from osmosis_ai.rollout.policy._http import Answer


@asynccontextmanager
async def answer_within(
    rollout: RolloutContext | None, open_answer: Callable[[], Awaitable[Answer]]
) -> AsyncGenerator[Answer]:
    """Lend an answer for as long as its rollout lasts, if it has one, and close it.

    Raises:
        PolicyError: the endpoint cannot be reached, or refused.
        RolloutEndedError: the rollout was over first.
    """
    if rollout is None:
        async with aclosing(await open_answer()) as answer:
            yield answer
        return
    end = _End()
    with rollout.policy_call(end.come):
        try:
            async with asyncio.timeout(None) as wait:
                with end.by(lambda: wait.reschedule(0.0)):
                    answer = await open_answer()
            async with aclosing(answer):
                if end.has_come:
                    raise rollout.ended_error()
                with end.by(lambda: end.close(answer)):
                    yield answer
        except (PolicyError, TimeoutError):
            if end.has_come:
                raise rollout.ended_error() from None
            raise


class _End:
    """Ends one call, on the call's own event loop.

    It costs nothing while pieces come, and cancels no task of user code: the wait for an answer is
    cut short, and one that has begun is closed, so that its reader finds it broken off.
    """

    def __init__(self) -> None:
        self.has_come = False
        self._loop = asyncio.get_running_loop()
        self._way: Callable[[], None] | None = None
        self._closing: asyncio.Task[None] | None = None

    def come(self) -> None:
        """Let the end come; from any thread."""
        self.has_come = True
        with suppress(RuntimeError):  # the loop is closed, and so is what was open on it
            self._loop.call_soon_threadsafe(self._apply)

    @contextmanager
    def by(self, way: Callable[[], None]) -> Generator[None]:
        """Name the way to end what the block does."""
        self._way = way
        try:
            yield
        finally:
            self._way = None

    def close(self, answer: Answer) -> None:
        """Close an answer under its reader's hands."""
        self._closing = self._loop.create_task(answer.aclose())

    def _apply(self) -> None:
        way, self._way = self._way, None
        if way is not None:
            way()
