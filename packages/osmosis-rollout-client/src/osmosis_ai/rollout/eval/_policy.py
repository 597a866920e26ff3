"""The policy behind a run, as the run sees it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from osmosis_ai.rollout.eval._outcomes import Job


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where one rollout reaches the policy.

    Attributes:
        url: Base URL of a streaming chat-completions endpoint.
        key: The bearer to send there, or None.
        callback_url: Who wants to be told, with the same key, that the rollout ended; or None.
    """

    url: str
    key: str | None = field(default=None, repr=False)
    callback_url: str | None = None


class Policy(Protocol):
    """What answers the rollouts of a run.

    A run starts its policy, asks for an endpoint before each rollout and for a report after it,
    and stops the policy in any case, also when starting failed.
    """

    @property
    def models(self) -> Sequence[str]:
        """The models that answer one attempt each, in their order; empty where all are alike."""
        ...

    @property
    def attempts(self) -> int:
        """How often every row is tried where nobody says how often, and all models are alike."""
        ...

    @property
    def identity(self) -> Mapping[str, Any]:
        """What a resumed run must find unchanged, as JSON; it holds no key."""
        ...

    async def start(self) -> None:
        """Get ready to answer.

        Raises:
            EvalError: the policy cannot be used.
        """
        ...

    async def stop(self) -> None:
        """Free everything; no endpoint answers any more."""
        ...

    def endpoint(self, job: Job) -> Endpoint:
        """Return the endpoint for one rollout; called once, before the rollout starts."""
        ...

    def report(
        self, job: Job, messages: Sequence[Mapping[str, Any]] | None
    ) -> dict[str, Any] | None:
        """Return what the policy knows of a rollout that has ended, as JSON; called once.

        It goes into the rollout's outcome. `prompt_tokens` and `completion_tokens` in it, whole
        numbers over all calls, count in the run's own numbers.

        Args:
            job: The rollout.
            messages: The sample's messages, or None where there is no sample.
        """
        ...
