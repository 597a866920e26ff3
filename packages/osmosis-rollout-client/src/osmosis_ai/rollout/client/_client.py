"""The client that evaluations, trainers and scripts start rollouts with."""

import asyncio
from http import HTTPStatus
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

from osmosis_ai.rollout.client._connection import Connection
from osmosis_ai.rollout.client._errors import RolloutProtocolError
from osmosis_ai.rollout.client._handle import (
    RolloutHandle,
    StatusListener,
    admission_deadline,
    cancel_on_server,
)
from osmosis_ai.rollout.types import Messages, RolloutInitRequest, RolloutResultResponse

if TYPE_CHECKING:
    import httpx

# How long a caller that was cancelled waits for the server to take note.
_FAREWELL_SEC = 5.0


class RolloutClient:
    """Runs rollouts on one server and polls for their results.

    Use it within one event loop, and close it there (`async with`, or `aclose`).

    Args:
        url: The server's base URL. A user and password in it serve when there is no key.
        http_client: An HTTP client to send with; it stays the caller's to close. By default the
            client makes its own, which goes past proxies when the server is on loopback.
        admission_timeout_sec: How long a rollout may wait for a server without capacity, in
            seconds; None waits for ever.
        api_key: The server's own key, where it wants one.

    Raises:
        ValueError: the URL is no HTTP URL, or the key cannot be a header's value.
    """

    def __init__(
        self,
        *,
        url: str,
        http_client: "httpx.AsyncClient | None" = None,
        admission_timeout_sec: float | None = None,
        api_key: str | None = None,
    ) -> None:
        self._connection = Connection(url, http_client, api_key)
        self._admission_timeout_sec = admission_timeout_sec
        self._handles: set[RolloutHandle] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def run_rollout(
        self,
        initial_messages: Messages,
        chat_completions_url: str,
        rollout_id: str,
        llm_api_key: str | None = None,
        label: str | None = None,
        metadata: dict[str, Any] | None = None,
        grade: bool = True,
        agent_timeout_sec: float | None = None,
        grader_timeout_sec: float | None = None,
        extra_fields: dict[str, Any] | None = None,
        on_status: StatusListener | None = None,
        completion_callback_url: str | None = None,
        grader_callback_url: str | None = None,
        controller_api_key: str | None = None,
    ) -> RolloutResultResponse:
        """Run one rollout and return its final result: success, failure or cancelled.

        The arguments are the fields of `RolloutInitRequest`, and `on_status`, which is called with
        each new status as the server tells it. A rollout that names callbacks is polled all the
        same. When the caller is cancelled, the rollout is cancelled on the server too, as far as
        that is possible within seconds.

        Raises:
            ValueError: an argument is not what the protocol takes.
            RolloutAdmissionTimeoutError: the server had no room until the admission deadline.
            RolloutProtocolError: the server could not be reached, refused, or answered nonsense.
        """
        handle = self.run_rollout_async(
            initial_messages,
            chat_completions_url,
            rollout_id,
            llm_api_key=llm_api_key,
            label=label,
            metadata=metadata,
            grade=grade,
            agent_timeout_sec=agent_timeout_sec,
            grader_timeout_sec=grader_timeout_sec,
            extra_fields=extra_fields,
            on_status=on_status,
            completion_callback_url=completion_callback_url,
            grader_callback_url=grader_callback_url,
            controller_api_key=controller_api_key,
        )
        try:
            return await handle
        except asyncio.CancelledError:
            await _farewell(handle)
            raise

    def run_rollout_async(
        self,
        initial_messages: Messages,
        chat_completions_url: str,
        rollout_id: str,
        llm_api_key: str | None = None,
        label: str | None = None,
        metadata: dict[str, Any] | None = None,
        grade: bool = True,
        agent_timeout_sec: float | None = None,
        grader_timeout_sec: float | None = None,
        extra_fields: dict[str, Any] | None = None,
        on_status: StatusListener | None = None,
        completion_callback_url: str | None = None,
        grader_callback_url: str | None = None,
        controller_api_key: str | None = None,
    ) -> RolloutHandle:
        """Start one rollout in the background and return its handle at once.

        The arguments are those of `run_rollout`.

        Raises:
            ValueError: an argument is not what the protocol takes.
        """
        request = RolloutInitRequest(
            initial_messages=initial_messages,
            chat_completions_url=chat_completions_url,
            rollout_id=rollout_id,
            llm_api_key=llm_api_key,
            label=label,
            metadata=metadata,
            grade=grade,
            agent_timeout_sec=agent_timeout_sec,
            grader_timeout_sec=grader_timeout_sec,
            extra_fields=extra_fields,
            completion_callback_url=completion_callback_url,
            grader_callback_url=grader_callback_url,
            controller_api_key=controller_api_key,
        )
        deadline = admission_deadline(self._admission_timeout_sec)
        handle = RolloutHandle(self._connection, request, deadline=deadline, on_status=on_status)
        self._handles.add(handle)
        handle.on_done(self._handles.discard)
        return handle

    async def cancel_rollout(self, rollout_id: str) -> str:
        """Stop a rollout on the server, whoever started it.

        Returns:
            `cancelled_queued`, `cancelled_running`, or `not_found` for one that has ended or never
            was.

        Raises:
            RolloutProtocolError: the server could not be reached or refused.
        """
        return await cancel_on_server(self._connection, rollout_id)

    async def health(self) -> dict[str, Any]:
        """Return the server's health: its `status`, `concurrency` and `lifecycle` among others.

        Raises:
            RolloutProtocolError: the server could not be reached or refused.
        """
        health = self._connection.decoded(await self._connection.ask("GET", "/health"))
        if not isinstance(health, dict):
            msg = "the rollout server's health is no JSON object"
            raise RolloutProtocolError(msg, status_code=HTTPStatus.OK)
        return cast("dict[str, Any]", health)

    async def wait_idle(
        self, *, timeout_sec: float | None = None, poll_interval_sec: float = 0.2
    ) -> None:
        """Wait until no rollout is active on the server, whoever started them.

        Args:
            timeout_sec: How long to wait, in seconds; None waits for ever.
            poll_interval_sec: How long to wait between two looks, in seconds.

        Raises:
            TimeoutError: rollouts are still active after `timeout_sec`.
            RolloutProtocolError: the server could not be reached, or does not tell.
        """
        async with asyncio.timeout(timeout_sec):
            # The server has no way to tell when it becomes idle: look again and again.
            while await self._active_rollouts() > 0:  # noqa: ASYNC110
                await asyncio.sleep(poll_interval_sec)

    async def _active_rollouts(self) -> int:
        try:
            return int((await self.health())["lifecycle"]["active_rollouts"])
        except (KeyError, TypeError, ValueError):
            msg = "the rollout server's health does not tell lifecycle.active_rollouts"
            raise RolloutProtocolError(msg, status_code=HTTPStatus.OK) from None

    async def aclose(self) -> None:
        """Stop following the rollouts in flight and close the connections.

        The server ends those rollouts when their leases run out; `RolloutHandle.cancel` stops one
        earlier.
        """
        handles = list(self._handles)
        await asyncio.gather(*(handle.abandon() for handle in handles))
        await self._connection.aclose()


async def _farewell(handle: RolloutHandle) -> None:
    try:
        async with asyncio.timeout(_FAREWELL_SEC):
            await handle.cancel()
            await handle
    except (TimeoutError, RolloutProtocolError):
        pass  # the rollout's lease will end it
    finally:
        await handle.abandon()
