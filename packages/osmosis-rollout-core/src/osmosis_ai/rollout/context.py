"""What a running rollout knows: its policy endpoint, its sample source, its inputs."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from osmosis_ai.rollout._calls import PolicyCalls
from osmosis_ai.rollout.types.config import AgentWorkflowConfig
from osmosis_ai.rollout.types.messages import MessageDict
from osmosis_ai.rollout.types.sample import RolloutSample


class SampleSource(ABC):
    """Something that can tell a rollout's conversation: an agent, a session, a recorder."""

    @abstractmethod
    async def get_sample(self) -> RolloutSample:
        """Return the conversation as it stands now; it may be asked for after a failure too."""


class RolloutEndedError(RuntimeError):
    """The rollout was over before its call to the policy was: the call was ended, or refused.

    Code that outlives its rollout meets it, in a thread or a task of its own. It is no
    `PolicyError`, because the endpoint did not fail and trying again does not help.
    """


_active: ContextVar["RolloutContext | None"] = ContextVar("osmosis_rollout_context", default=None)


@dataclass(eq=False)
class RolloutContext:
    """The active rollout, for the code that runs inside it; use it as a context manager.

    Tasks and `asyncio.to_thread` inherit the context; a thread that was started otherwise has none.

    Leaving the context ends the calls to its policy that are still under way, on any event loop of
    any thread; code that goes on can make no more of them, unless the context is entered again.

    Attributes:
        chat_completions_url: Base URL of the policy's endpoint. When it is empty, the attributes
            that were not given are read from `OSMOSIS_CHAT_COMPLETIONS_URL`, `OSMOSIS_API_KEY` and
            `OSMOSIS_ROLLOUT_ID`.
        api_key: Bearer for the endpoint; None sends none.
        rollout_id: The rollout's id.
        sample_source: What tells the conversation when the workflow returns None.
        policy_calls: What `PolicyClient` has been told by this rollout's policy.
    """

    chat_completions_url: str = ""
    api_key: str | None = field(default=None, repr=False)
    rollout_id: str = ""
    sample_source: SampleSource | None = None
    policy_calls: PolicyCalls = field(default_factory=PolicyCalls, init=False, repr=False)
    _entered: list[Token["RolloutContext | None"]] = field(
        default_factory=list[Token["RolloutContext | None"]], init=False, repr=False
    )
    _has_ended: bool = field(default=False, init=False, repr=False)
    _stops: set[Callable[[], None]] = field(
        default_factory=set[Callable[[], None]], init=False, repr=False
    )

    def __post_init__(self) -> None:
        if self.chat_completions_url:
            return
        self.chat_completions_url = os.environ.get("OSMOSIS_CHAT_COMPLETIONS_URL", "")
        self.api_key = self.api_key or os.environ.get("OSMOSIS_API_KEY") or None
        self.rollout_id = self.rollout_id or os.environ.get("OSMOSIS_ROLLOUT_ID", "")

    def __enter__(self) -> Self:
        self._entered.append(_active.set(self))
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._leave()
        if not self._entered:
            self._stop_calls()

    def set_sample_source(self, source: SampleSource) -> None:
        """Register what tells this rollout's conversation.

        Raises:
            ValueError: a sample source is registered already.
        """
        if self.sample_source is not None:
            msg = (
                f"this rollout already has a sample source ({type(self.sample_source).__name__}): "
                "build one agent or session per rollout"
            )
            raise ValueError(msg)
        self.sample_source = source

    async def get_sample(self) -> RolloutSample | None:
        """Return the registered source's sample, or None when no source is registered."""
        return None if self.sample_source is None else await self.sample_source.get_sample()

    def check_active(self, what: str) -> None:
        """Make sure that the code that runs is inside of this context.

        Args:
            what: What was built in it, such as an agent, for the error's text.

        Raises:
            RuntimeError: another context, or none, is active.
        """
        active = _active.get()
        if active is self:
            return
        where = (
            "outside of every rollout" if active is None else "in another rollout or by the grader"
        )
        msg = (
            f"this {what} belongs to the RolloutContext that it was built in (rollout "
            f"{self.rollout_id!r}) but is used {where}: build it anew in each rollout, inside "
            "run(), and start threads with asyncio.to_thread, which takes the context along"
        )
        raise RuntimeError(msg)

    def end(self) -> None:
        """End the rollout's calls to its policy for good, also those of code that is still inside.

        For backends, which know that a rollout is over before all of its code does.
        """
        self._has_ended = True
        self._stop_calls()

    def follow_call(self, stop: Callable[[], None]) -> None:
        """Follow a call to the policy, which `stop` ends if the rollout is over first.

        Args:
            stop: Called from any thread, perhaps more than once; it must neither block nor raise.

        Raises:
            RolloutEndedError: the rollout is over.
        """
        # Noted first: an end that another thread brings about in between finds it.
        self._stops.add(stop)
        if self._has_ended or not self._entered:
            raise self.ended_error()

    def forget_call(self, stop: Callable[[], None]) -> None:
        """Follow a call no more, whether it was followed or refused."""
        self._stops.discard(stop)

    def ended_error(self) -> RolloutEndedError:
        """Return what a call to the policy raises when the rollout is over."""
        return RolloutEndedError(
            f"rollout {self.rollout_id!r} is over, and with it its calls to the policy: what run() "
            "or grade() starts in threads and tasks has to end before they return"
        )

    def _stop_calls(self) -> None:
        for stop in list(self._stops):
            stop()

    def _leave(self) -> None:
        for token in reversed(self._entered):
            try:
                _active.reset(token)
            except ValueError:
                continue  # of another task, which is inside this context as well
            self._entered.remove(token)
            return
        # Left in another task than it was entered in. That task's copy still names this context
        # if it was started inside, so restore the outer one there as well.
        outer = self._entered.pop().old_value
        if _active.get() is self:
            _active.set(outer if isinstance(outer, RolloutContext) else None)


def get_rollout_context() -> RolloutContext | None:
    """Return the rollout context that is active here, or None outside of one."""
    return _active.get()


@dataclass
class AgentWorkflowContext[TConfig: AgentWorkflowConfig]:
    """Input of `AgentWorkflow.run()`.

    Attributes:
        prompt: The dataset row's messages, a private copy.
        config: The workflow's config, a private copy, or None.
        metadata: The dataset row's metadata; the grader sees the same object.
        artifacts_dir: Where to write this rollout's files; None when there is no such place.
    """

    prompt: list[MessageDict]
    config: TConfig | None = None
    metadata: dict[str, Any] | None = None
    artifacts_dir: Path | None = None


@dataclass
class GraderContext:
    """Input of `Grader.grade()`.

    Attributes:
        label: The reference answer.
        sample: What the workflow produced.
        project_path: The user's project, where the execution environment knows it.
        metadata: The dataset row's metadata, the same object that the workflow saw.
        artifacts_dir: The rollout's directory for files, the same as the workflow's.
    """

    label: str | None = None
    sample: RolloutSample | None = None
    project_path: str | None = None
    metadata: dict[str, Any] | None = None
    artifacts_dir: Path | None = None

    def set_reward(self, reward: float | None) -> None:
        """Set the sample's reward; the last call counts.

        Args:
            reward: A finite number. NumPy-like scalars, Decimal, Fraction and bool are converted.

        Raises:
            ValueError: there is no sample to reward.
            pydantic.ValidationError: the reward is not a finite number.
        """
        if self.sample is None:
            msg = "there is no sample to reward: the workflow produced none"
            raise ValueError(msg)
        self.sample.reward = reward
