"""Admission: what becomes of a `POST /rollout`."""

import hashlib
import logging
import uuid
from collections.abc import Callable
from functools import partial

from osmosis_ai.rollout.backend import ExecutionBackend
from osmosis_ai.rollout.server._archive import Archive
from osmosis_ai.rollout.server._bodies import parse_body
from osmosis_ai.rollout.server._callbacks import Callbacks, wants_callbacks
from osmosis_ai.rollout.server._execution import Executor
from osmosis_ai.rollout.server._lease import Lease, LeaseTimers
from osmosis_ai.rollout.server._outbox import Outbox
from osmosis_ai.rollout.server._pace import FALLBACK_SEC
from osmosis_ai.rollout.server._refusals import refuse
from osmosis_ai.rollout.server._registry import Acceptance, Registry, Rollout
from osmosis_ai.rollout.server._settings import Settings
from osmosis_ai.rollout.types import (
    ExecutionResult,
    RolloutErrorCategory,
    RolloutErrorOrigin,
    RolloutInitRequest,
    RolloutInitResponse,
    RolloutStatus,
)

IDEMPOTENCY_HEADER = "Idempotency-Key"

_log = logging.getLogger(__name__)


class Admission:
    """Decides on requests for rollouts, and starts those that it accepts."""

    def __init__(
        self,
        backend: ExecutionBackend,
        registry: Registry,
        executor: Executor,
        archive: Archive,
        outbox: Outbox,
        settings: Settings,
    ) -> None:
        self._backend = backend
        self._registry = registry
        self._executor = executor
        self._archive = archive
        self._outbox = outbox
        self._settings = settings
        self._lease_timers = LeaseTimers(settings)
        self.is_open = True

    async def admit(self, body: bytes, key: str | None) -> bytes:
        """Start the rollout that a body asks for; its execution exists when this returns.

        Args:
            body: The request's body.
            key: The request's `Idempotency-Key`: a repeat gets the first answer again.

        Returns:
            The body of the 202.

        Raises:
            Refusal: 422, 409, 503 or 429, in this order.
        """
        request = parse_body(RolloutInitRequest, body)
        digest = hashlib.sha256(body).digest() if key is not None else b""
        if (first := self._answered_before(request, key, digest)) is not None:
            return first
        if request.rollout_id is not None and self._archive.makes_room:
            await self._archive.make_room(request.rollout_id)
            # Others may have been admitted meanwhile.
            if (first := self._answered_before(request, key, digest)) is not None:
                return first
        rollout = self._make_rollout(request.rollout_id or uuid.uuid4().hex, key, digest)
        if wants_callbacks(request):
            # Its lease is armed by the first poll, should there ever be one.
            rollout.watchers.append(Callbacks(rollout, request, self._outbox).follow)
        else:
            rollout.lease.renew()
        self._registry.add(rollout)
        self._executor.start(rollout, request)
        return rollout.acceptance.answer

    def _answered_before(
        self, request: RolloutInitRequest, key: str | None, digest: bytes
    ) -> bytes | None:
        """Return the answer to the same request, if it came before; refuse what cannot be now."""
        if key is not None and (first := self._registry.accepted_with(key)) is not None:
            return _repeat(first.acceptance, digest)
        self._check_identity(request.rollout_id)
        self._check_room(request)
        return None

    def _check_identity(self, rollout_id: str | None) -> None:
        if rollout_id is not None and self._is_taken(rollout_id):
            msg = "the id is taken: its rollout is running, or its result is still retained"
            raise refuse(409, ("body", "rollout_id"), msg, "rollout_id_taken")

    def _is_taken(self, rollout_id: str) -> bool:
        if self._registry.get(rollout_id) is not None:
            return True
        # Another app may share the backend, and code of a forgotten rollout may still run in it.
        return _ask(self._backend.is_in_use, rollout_id)

    def _check_room(self, request: RolloutInitRequest) -> None:
        if not self.is_open:
            msg = "the server is shutting down: go to another one"
            raise refuse(503, ("server",), msg, "shutting_down")
        is_congested = wants_callbacks(request) and self._outbox.is_full
        if is_congested or not _ask(self._backend.has_capacity):
            msg = "the server has no capacity: try again later"
            wait_sec = FALLBACK_SEC if is_congested else self._registry.pace.retry_after()
            headers = {"Retry-After": str(wait_sec)}
            raise refuse(429, ("server",), msg, "no_capacity", headers=headers)

    def _make_rollout(self, rollout_id: str, key: str | None, digest: bytes) -> Rollout:
        settings = self._settings
        on_expiry = partial(self._expire, rollout_id)
        lease = Lease(settings.polling_lease_timeout_sec, self._lease_timers, on_expiry)
        answer = RolloutInitResponse(
            rollout_id=rollout_id,
            polling_lease_token=lease.token,
            result_wait_timeout_sec=settings.result_wait_timeout_sec,
            polling_lease_timeout_sec=settings.polling_lease_timeout_sec,
        )
        acceptance = Acceptance(answer.model_dump_json().encode(), key, digest)
        return Rollout(rollout_id, lease, acceptance, watchers=[lease.follow])

    def _expire(self, rollout_id: str) -> None:
        rollout = self._registry.get(rollout_id)
        if rollout is not None:
            self._executor.stop([rollout], _lease_expired(self._settings))


def _ask[*P](question: Callable[[*P], bool], *args: *P) -> bool:
    try:
        return question(*args)
    except Exception as error:
        # A boundary: a user's backend that cannot answer takes no rollouts, and nothing breaks.
        _log.error("The backend cannot tell if it takes a rollout: %s.", type(error).__name__)
        msg = "the backend cannot tell whether it takes the rollout: go to another server"
        raise refuse(503, ("server",), msg, "backend_error") from None


def _lease_expired(settings: Settings) -> ExecutionResult:
    return ExecutionResult(
        status=RolloutStatus.FAILURE,
        err_message=(
            f"no poll for the result came within {settings.polling_lease_timeout_sec:g} s: "
            "the polling lease expired"
        ),
        err_category=RolloutErrorCategory.LEASE_EXPIRED,
        origin=RolloutErrorOrigin.INFRASTRUCTURE,
        retryable=True,
    )


def _repeat(acceptance: Acceptance, digest: bytes) -> bytes:
    if acceptance.digest != digest:
        msg = "this key was sent before with another body: use a new key for a new request"
        raise refuse(422, ("header", IDEMPOTENCY_HEADER), msg, "idempotency_key_reused")
    return acceptance.answer
