"""A rollout in flight, as its caller sees it."""

import asyncio
import time
from collections.abc import Callable, Generator
from typing import Any

from osmosis_ai.rollout.client._connection import Connection, encoded
from osmosis_ai.rollout.client._polling import admit, follow
from osmosis_ai.rollout.types import (
    CancelRolloutsResponse,
    RolloutInitRequest,
    RolloutResultResponse,
    RolloutStatus,
)

type StatusListener = Callable[[RolloutStatus], None]
"""Called with each new status of a rollout; it must not raise."""


class RolloutHandle:
    """A rollout that was sent to a server; await it for its result.

    Any number of tasks may wait on one handle; that one of them is cancelled ends its waiting only.

    Attributes:
        rollout_id: The rollout's id.
    """

    def __init__(
        self,
        connection: Connection,
        request: RolloutInitRequest,
        *,
        deadline: float,
        on_status: StatusListener | None = None,
    ) -> None:
        self.rollout_id: str = request.rollout_id or ""
        self._connection = connection
        self._on_status = on_status
        self._status = RolloutStatus.QUEUED
        self._latest: RolloutResultResponse | None = None
        self._admitted = False
        self._unwanted = asyncio.Event()
        self._running = asyncio.Event()
        self._grading = asyncio.Event()
        # Encoded here, so that what JSON cannot hold is the caller's error and not the task's.
        body = encoded({name: value for name, value in request if value is not None})
        keys = (request.llm_api_key, request.controller_api_key)
        secrets = tuple(key for key in keys if key)
        self._task = asyncio.create_task(self._run(body, secrets, deadline))
        self._task.add_done_callback(lambda _: self._note(final=True))

    @property
    def status(self) -> RolloutStatus:
        """The last status that the server told; `queued` until it told one."""
        return self._status

    @property
    def latest_result(self) -> RolloutResultResponse | None:
        """The server's last answer, or None before the first."""
        return self._latest

    def done(self) -> bool:
        """Whether nothing more will come: a final result, or an error that awaiting raises."""
        return self._task.done()

    def __await__(self) -> Generator[Any, None, RolloutResultResponse]:
        return self.wait_for_completion().__await__()

    async def wait_for_completion(self) -> RolloutResultResponse:
        """Return the final result: success, failure or cancelled.

        Raises:
            RolloutAdmissionTimeoutError: the server had no room until the admission deadline.
            RolloutProtocolError: the server could not be reached, refused, or answered nonsense.
            RuntimeError: the client was closed before the result came.
        """
        try:
            return await asyncio.shield(self._task)
        except asyncio.CancelledError:
            if self._task.cancelled():
                msg = f"the client was closed before rollout {self.rollout_id!r} ended"
                raise RuntimeError(msg) from None
            raise

    async def wait_for_running(self) -> RolloutStatus:
        """Wait until the rollout runs, or is past that, and return its status.

        Raises:
            Exception: what `wait_for_completion` raises, when no status came.
        """
        return await self._reached(self._running)

    async def wait_for_grading(self) -> RolloutStatus:
        """Wait until the rollout is graded, or has ended, and return its status.

        Raises:
            Exception: what `wait_for_completion` raises, when no status came.
        """
        return await self._reached(self._grading)

    async def cancel(self) -> None:
        """Stop the rollout; await the handle to see how it ended.

        A rollout that waits for admission is not sent again, and ends as cancelled.

        Raises:
            RolloutProtocolError: the server could not be reached or refused.
        """
        self._unwanted.set()
        if self._admitted and not self.done():
            await cancel_on_server(self._connection, self.rollout_id)

    def on_done(self, callback: Callable[["RolloutHandle"], None]) -> None:
        """Have `callback` called with the handle once nothing more will come."""
        self._task.add_done_callback(lambda _: callback(self))

    async def abandon(self) -> None:
        """Stop following the rollout; the server ends it when its lease runs out."""
        self._task.cancel()
        await asyncio.wait({self._task})

    async def _reached(self, stage: asyncio.Event) -> RolloutStatus:
        await stage.wait()
        if self.done():
            await self.wait_for_completion()
        return self._status

    async def _run(
        self, body: bytes, secrets: tuple[str, ...], deadline: float
    ) -> RolloutResultResponse:
        admitted = await admit(
            self._connection, body, secrets=secrets, deadline=deadline, give_up=self._unwanted
        )
        if admitted is None:
            result = RolloutResultResponse(
                rollout_id=self.rollout_id,
                status=RolloutStatus.CANCELLED,
                err_message="cancelled before the server admitted it",
            )
            self._on_answer(result)
            return result
        self._admitted = True
        if self._unwanted.is_set():
            await cancel_on_server(self._connection, self.rollout_id)
        return await follow(self._connection, admitted, self._on_answer)

    def _on_answer(self, answer: RolloutResultResponse) -> None:
        self._latest = answer
        changed = answer.status is not self._status
        self._status = answer.status
        if changed and self._on_status:
            self._on_status(answer.status)
        self._note(final=answer.status.is_final)

    def _note(self, *, final: bool) -> None:
        if final or self._status in {RolloutStatus.RUNNING, RolloutStatus.GRADING}:
            self._running.set()
        if final or self._status == RolloutStatus.GRADING:
            self._grading.set()


async def cancel_on_server(connection: Connection, rollout_id: str) -> str:
    """Cancel one rollout and return its disposition (see `RolloutClient.cancel_rollout`)."""
    body = encoded({"ids": [rollout_id]})
    answer = await connection.ask("POST", "/rollout/cancel", body=body)
    dispositions = connection.parsed(answer, CancelRolloutsResponse).dispositions
    return dispositions.get(rollout_id, "not_found")


def admission_deadline(timeout_sec: float | None) -> float:
    """Return when admission has to be given up, in the terms of `time.monotonic()`."""
    return float("inf") if timeout_sec is None else time.monotonic() + timeout_sec
