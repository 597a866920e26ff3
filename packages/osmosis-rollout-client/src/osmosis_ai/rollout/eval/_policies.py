"""The policies of a run: a gateway, an endpoint that is there, or what was recorded."""

import hashlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from osmosis_ai.rollout.eval._errors import EvalError
from osmosis_ai.rollout.eval._files import RunFiles
from osmosis_ai.rollout.eval._manifest import shown_url
from osmosis_ai.rollout.eval._options import EvalOptions
from osmosis_ai.rollout.eval._outcomes import Attempt, Job
from osmosis_ai.rollout.eval._policy import Endpoint, Policy
from osmosis_ai.rollout.eval._recording import RecordedRun, Recording
from osmosis_ai.rollout.eval._stored import RUNS, StoredRun
from osmosis_ai.rollout.testing import RecordingError, ReplayPolicy


@dataclass(frozen=True, slots=True)
class RunningEndpoint:
    """An endpoint that somebody else runs; every rollout gets the same."""

    url: str
    key: str | None = field(default=None, repr=False)
    models: Sequence[str] = ()
    attempts: int = 1

    @property
    def identity(self) -> Mapping[str, Any]:
        """Its URL."""
        return {"chat_url": shown_url(self.url)}

    async def start(self) -> None:
        """Do nothing: it runs already."""

    async def stop(self) -> None:
        """Do nothing: it is not ours to stop."""

    def endpoint(self, job: Job) -> Endpoint:
        """Return the one endpoint."""
        return Endpoint(self.url, self.key)

    def report(
        self, job: Job, messages: Sequence[Mapping[str, Any]] | None
    ) -> dict[str, Any] | None:
        """Return None: nobody sees what goes to it."""
        return None


class RecordedSolutions:
    """Solutions in a file, replayed by this process: each recorded model makes one attempt."""

    attempts: int = 1

    def __init__(self, path: Path) -> None:
        self._path = path
        self._replay = ReplayPolicy(path)
        self._running = False

    @property
    def models(self) -> Sequence[str]:
        """The recorded models, in the order of the file's first line."""
        return self._replay.models

    @property
    def identity(self) -> Mapping[str, Any]:
        """The file's content."""
        return {"replay_sha256": hashlib.sha256(self._path.read_bytes()).hexdigest()}

    async def start(self) -> None:
        """Read the file, and serve what it holds.

        Raises:
            EvalError: the recordings cannot be used.
        """
        try:
            self._replay.__enter__()
        except OSError as error:
            msg = f"{self._path}: cannot be read: {error.strerror or error}"
            raise EvalError(msg) from None
        except RecordingError as error:
            raise EvalError(str(error)) from None
        self._running = True

    async def stop(self) -> None:
        """Stop to serve."""
        if self._running:
            self._replay.__exit__(None, None, None)

    def endpoint(self, job: Job) -> Endpoint:
        """Return where the attempt's model answers."""
        return Endpoint(self._replay.url_for(job.attempt.model or ""))

    def report(
        self, job: Job, messages: Sequence[Mapping[str, Any]] | None
    ) -> dict[str, Any] | None:
        """Return None: a replay has nothing to tell that the recording does not."""
        return None


def policy_of(options: EvalOptions) -> Policy:
    """Return the policy that the options name."""
    if options.replay is not None:
        named = RUNS / options.replay
        if options.replay.is_dir() or (named.is_dir() and not options.replay.exists()):
            return RecordedRun(StoredRun.find(str(options.replay)))
        return RecordedSolutions(options.replay)
    if options.base_url:
        # Here, for nothing else needs an HTTP server.
        from osmosis_ai.rollout.eval._gateway._gateway import Gateway

        recording = Recording(RunFiles(options.output).recording) if options.record else None
        return Gateway(options, recording)
    return RunningEndpoint(options.chat_url or "", options.chat_key)


@asynccontextmanager
async def started(policy: Policy) -> AsyncGenerator[Policy]:
    """Have a policy answer while the context lasts.

    Raises:
        EvalError: the policy cannot be used.
    """
    try:
        await policy.start()
        yield policy
    finally:
        await policy.stop()


def attempts_of(policy: Policy, wanted: int | None) -> list[Attempt]:
    """Return the attempts that every row gets.

    Raises:
        EvalError: more attempts are wanted than there are models to make them.
    """
    models = policy.models
    if not models:
        return [Attempt(number, None) for number in range(1, (wanted or policy.attempts) + 1)]
    if wanted is not None and wanted > len(models):
        msg = (
            f"{wanted} attempts need as many recorded models, and the file holds {len(models)}: "
            f"{', '.join(models)}"
        )
        raise EvalError(msg)
    return [Attempt(number, model) for number, model in enumerate(models[:wanted], 1)]
