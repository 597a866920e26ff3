"""Artifacts directories for rollouts, best effort and off the event loop."""

import asyncio
import logging
import threading
from pathlib import Path

from osmosis_ai.rollout.artifacts import prove_writable, provision
from osmosis_ai.rollout.threads import off_loop

_log = logging.getLogger(__name__)

_RETRY_AFTER_SECONDS = (0.5, 1.0)


class ArtifactDirs:
    """Makes the artifacts directories of one backend below one root."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._proved = False
        self._proving = threading.Lock()

    async def provide(self, rollout_id: str, *, fresh: bool = True) -> Path | None:
        """Return the rollout's artifacts directory, or None when it cannot be had.

        Errors of the operating system are retried twice; the last one is only logged.

        Args:
            rollout_id: The rollout's id.
            fresh: Whether files of an earlier rollout of this id are set aside.
        """
        pauses = iter(_RETRY_AFTER_SECONDS)
        while True:
            try:
                return await off_loop(self._provide, rollout_id, fresh)
            except OSError as error:
                self._proved = False
                pause = next(pauses, None)
                if pause is None:
                    _log.warning("Rollout %s has no artifacts directory: %s", rollout_id, error)
                    return None
            await asyncio.sleep(pause)

    def _provide(self, rollout_id: str, fresh: bool) -> Path:
        with self._proving:
            if not self._proved:
                prove_writable(self.root)
                self._proved = True
        return provision(self.root, rollout_id, fresh=fresh)
