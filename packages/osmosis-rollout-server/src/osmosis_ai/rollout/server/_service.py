"""The server's state on one event loop: registry, executor and admission, and how it ends."""

import asyncio
import logging
from asyncio.tasks import _unregister_task  # pyright: ignore[reportPrivateUsage]

from osmosis_ai.rollout.backend import ExecutionBackend
from osmosis_ai.rollout.server._admission import Admission
from osmosis_ai.rollout.server._archive import Archive
from osmosis_ai.rollout.server._execution import Executor
from osmosis_ai.rollout.server._outbox import Outbox
from osmosis_ai.rollout.server._registry import Registry, Rollout
from osmosis_ai.rollout.server._settings import Settings
from osmosis_ai.rollout.types import (
    CancelRolloutsRequest,
    ExecutionResult,
    RolloutErrorOrigin,
    RolloutStatus,
)

# How long running rollouts may go on after the server was told to stop.
DRAIN_SEC = 10.0

# How long cancelled work may take to unwind at shutdown before it is left alone.
UNWIND_SEC = 4.0

# How long callbacks may take to arrive once all work has been stopped.
DELIVERY_SEC = 10.0

_CANCELLED = ExecutionResult(
    status=RolloutStatus.CANCELLED,
    err_message="the rollout was cancelled by a request",
    origin=RolloutErrorOrigin.CANCELLED,
    retryable=False,
)
_SHUT_DOWN = ExecutionResult(
    status=RolloutStatus.CANCELLED,
    err_message="the rollout server shut down",
    origin=RolloutErrorOrigin.INFRASTRUCTURE,
    retryable=True,
)

_log = logging.getLogger(__name__)


class Service:
    """What one app does on one event loop."""

    def __init__(self, backend: ExecutionBackend, archive: Archive, settings: Settings) -> None:
        self.registry = Registry(settings.result_retention_sec)
        self.executor = Executor(backend, archive)
        self.outbox = Outbox()
        self.admission = Admission(
            backend, self.registry, self.executor, archive, self.outbox, settings
        )

    async def poll(self, rollout: Rollout) -> None:
        """Wait until the rollout's status is another than the one that its lease was told.

        A final status, a server that shuts down, and `result_wait_timeout_sec` end the wait too.
        """
        lease = rollout.lease
        with lease.polling():
            self.executor.refresh(rollout)
            if rollout.final is None and self.admission.is_open:
                await lease.wait(is_news=rollout.status is not lease.told)
            lease.told = rollout.status

    def cancel(self, request: CancelRolloutsRequest) -> dict[str, str]:
        """Stop the rollouts that a request names, and tell what became of each."""
        if request.ids is not None:
            known = [self.registry.get(rollout_id) for rollout_id in request.ids]
            missing = dict.fromkeys(request.ids, "not_found")
            chosen = [rollout for rollout in known if rollout is not None]
            return missing | self.executor.stop(chosen, _CANCELLED)
        prefix = request.prefix or ""
        unfinished = self.registry.unfinished()
        chosen = [rollout for rollout in unfinished if rollout.id.startswith(prefix)]
        return self.executor.stop(chosen, _CANCELLED)

    def close(self) -> None:
        """Admit nothing more, and let every waiting poll answer; a second call stops all work."""
        if not self.admission.is_open:
            self._stop_all()
            return
        self.admission.is_open = False
        for rollout in self.registry.unfinished():
            rollout.lease.wake()

    async def drain(self) -> None:
        """Wait for the running rollouts for a while, then stop them and let callbacks arrive.

        It always comes to an end.
        """
        if self.admission.is_open:
            self.close()
        await self._wait_for_tasks(DRAIN_SEC)
        self._stop_all()
        delivered_by = asyncio.get_running_loop().time() + DELIVERY_SEC
        await self._wait_for_tasks(UNWIND_SEC)
        await self.outbox.flush(delivered_by - asyncio.get_running_loop().time())
        self.outbox.close()

    async def abandon(self) -> None:
        """Cancel what rollouts left behind, and let nothing that ignores it hold up the exit."""
        leftovers = self.executor.leftovers()
        for task in leftovers:
            task.cancel()
        if leftovers:
            await asyncio.wait(leftovers, timeout=UNWIND_SEC)
        for task in self.executor.leftovers():
            _log.error("Task %s ignores its cancellation and is left alone.", task.get_name())
            # asyncio.run() would wait for it for ever.
            _unregister_task(task)

    async def _wait_for_tasks(self, timeout_sec: float) -> None:
        if tasks := self.registry.tasks():
            _log.info("Waiting for %d rollout(s), %g s at most.", len(tasks), timeout_sec)
            await asyncio.wait(tasks, timeout=timeout_sec)

    def _stop_all(self) -> None:
        self.executor.stop(self.registry.unfinished(), _SHUT_DOWN)
