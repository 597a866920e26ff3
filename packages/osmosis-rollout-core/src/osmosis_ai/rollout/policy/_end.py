"""The end of a rollout, which ends its calls to the policy on whatever event loop they run."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType

from osmosis_ai.rollout.context import RolloutContext
from osmosis_ai.rollout.policy._errors import PolicyError
from osmosis_ai.rollout.policy._http import Answer


class AnswerWithin:
    """Lends an answer for as long as its rollout lasts, if it has one, and closes it.

    The end costs nothing while pieces come, and cancels no task of user code: the wait for an
    answer is cut short, and one that has begun is closed, so that its reader finds it broken off.

    Args:
        rollout: The rollout.
        open_answer: Asks for the answer.

    Raises:
        PolicyError: the endpoint cannot be reached, or refused.
        RolloutEndedError: the rollout was over first.
    """

    def __init__(
        self, rollout: RolloutContext | None, open_answer: Callable[[], Awaitable[Answer]]
    ) -> None:
        self._rollout = rollout
        self._open_answer = open_answer
        self._loop = asyncio.get_running_loop()
        self._answer: Answer | None = None
        self._end: Callable[[], None] | None = None
        self._has_ended = False

    async def __aenter__(self) -> Answer:
        try:
            return await self._open()
        except BaseException as error:
            self._leave(error)
            raise

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._leave(exc)

    async def _open(self) -> Answer:
        if self._rollout is None:
            self._answer = await self._open_answer()
            return self._answer
        self._rollout.follow_call(self._come)
        async with asyncio.timeout(None) as wait:
            self._end = lambda: wait.reschedule(0.0)
            self._answer = await self._open_answer()
        if self._has_ended:
            raise self._rollout.ended_error()
        self._end = self._answer.close
        return self._answer

    def _leave(self, error: BaseException | None) -> None:
        self._end = None
        if self._answer is not None:
            self._answer.close()
        if self._rollout is None:
            return
        self._rollout.forget_call(self._come)
        if self._has_ended and isinstance(error, PolicyError | TimeoutError):
            raise self._rollout.ended_error() from None

    def _come(self) -> None:
        """Let the end come; from any thread."""
        self._has_ended = True
        with suppress(RuntimeError):  # the loop is closed, and so is what was open on it
            self._loop.call_soon_threadsafe(self._apply)

    def _apply(self) -> None:
        end, self._end = self._end, None
        if end is not None:
            end()
