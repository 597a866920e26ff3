"""The session that keeps a rollout's conversation, and the sample made of it."""

import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from inspect import signature
from typing import Any, cast, override
from uuid import uuid4
from weakref import WeakKeyDictionary

from agents import RunContextWrapper
from agents.items import TResponseInputItem
from agents.memory import Session, SessionSettings

from osmosis_ai.rollout import MessageDict, RolloutSample, SampleSource, get_rollout_context
from osmosis_ai.rollout.integrations.agents.openai_agents._record import Record, State
from osmosis_ai.rollout.integrations.agents.openai_agents._tracing import keep_traces_at_home
from osmosis_ai.rollout.integrations.agents.openai_agents._turns import Item
from osmosis_ai.rollout.types.copying import deep_copy

_log = logging.getLogger(__name__)

type _Wrapper = RunContextWrapper[Any]


def _with_signature[TMethod: Callable[..., object]](method: TMethod) -> TMethod:
    """Keep a method's signature on it.

    At every step of a run the Agents SDK looks whether all four methods of a session take a
    `wrapper`, and without this `inspect` puts each signature together anew each time.
    """
    vars(method)["__signature__"] = signature(method)
    return method


class OsmosisMemorySession:
    """A session of the Agents SDK in memory, which tells the rollout its conversation.

    Built inside `run()`, it is registered as the rollout's sample source; pass it to `Runner.run`.
    Built outside of every rollout, it is a plain session.

    Args:
        session_id: The session's name, which nothing here depends on.

    Attributes:
        session_id: The same.
        session_settings: None; the Agents SDK asks sessions for it.

    Its methods take the `wrapper` by which the Agents SDK, from 0.20 on, tells runs apart.

    Raises:
        ValueError: the rollout has a sample source already.
        RuntimeError: by every method, in another rollout than the one that it was built in; by
            `add_items`, for a run that goes on while another one writes here as well.
    """

    session_settings: SessionSettings | None = None

    def __init__(self, session_id: str | None = None) -> None:
        self.session_id: str = session_id or uuid4().hex
        self._items: list[TResponseInputItem] = []
        self._runs = _Runs()
        self._context = get_rollout_context()
        self._source = SessionSampleSource(self)
        if self._context is not None:
            keep_traces_at_home()
            self._context.set_sample_source(self._source)

    @_with_signature
    async def get_items(
        self, limit: int | None = None, *, wrapper: _Wrapper | None = None
    ) -> list[TResponseInputItem]:
        """Return copies of the newest `limit` items, oldest first; of all without a limit."""
        self._check_rollout()
        if wrapper is not None:
            self._runs.note_read(wrapper)
        first = 0 if limit is None else max(0, len(self._items) - max(0, limit))
        return deep_copy(self._items[first:])

    @_with_signature
    async def add_items(
        self, items: list[TResponseInputItem], *, wrapper: _Wrapper | None = None
    ) -> None:
        """Append copies of the items."""
        self._check_rollout()
        if wrapper is not None:
            self._runs.note_write(wrapper)
        self._items += deep_copy(items)

    @_with_signature
    async def pop_item(self, *, wrapper: _Wrapper | None = None) -> TResponseInputItem | None:
        """Remove the newest item and return it, or None when there is none."""
        self._check_rollout()
        item = self._items.pop() if self._items else None
        self._source.record.forget(len(self._items))
        return item

    @_with_signature
    async def clear_session(self, *, wrapper: _Wrapper | None = None) -> None:
        """Remove all items."""
        self._check_rollout()
        self._items.clear()
        self._source.record.forget(0)

    @property
    def state(self) -> State:
        """How many items there are, and the newest one, not copied."""
        return len(self._items), cast("Item", self._items[-1]) if self._items else None

    def _check_rollout(self) -> None:
        active = get_rollout_context()
        if active is self._context:
            return
        where = (
            "outside of every rollout" if active is None else "in another rollout or by the grader"
        )
        built = f"in rollout {self._context.rollout_id!r}" if self._context else "outside of them"
        msg = (
            f"this OsmosisMemorySession was built {built} but is used {where}: build one per "
            "rollout, inside run(), and start threads with asyncio.to_thread, which takes the "
            "context along"
        )
        raise RuntimeError(msg)


class _Runs:
    """Sees to it that runs write to a session one after the other.

    Two at once would leave a conversation of both in it, which the policy never had.
    """

    def __init__(self) -> None:
        self._writes = 0
        self._known: WeakKeyDictionary[_Wrapper, int] = WeakKeyDictionary()

    def note_read(self, run: _Wrapper) -> None:
        """Note that a run has what is in the session."""
        self._known[run] = self._writes

    def note_write(self, run: _Wrapper) -> None:
        """Note that a run adds to the session.

        Raises:
            RuntimeError: another one has, since this one last did.
        """
        if self._known.get(run, self._writes) != self._writes:
            msg = (
                "two runs at once use one OsmosisMemorySession, which would mix their "
                "conversations: run them one after the other, or give a session to one of them "
                "only; a rollout has one sample"
            )
            raise RuntimeError(msg)
        self._writes += 1
        self._known[run] = self._writes


class SessionSampleSource(SampleSource):
    """Makes a rollout's sample of the conversation in a session.

    `OsmosisMemorySession` registers one of itself. To keep the conversation in another session,
    register it with `get_rollout_context().set_sample_source(SessionSampleSource(session))`.

    Args:
        session: Any session of the Agents SDK; it should be empty when the rollout begins.

    Attributes:
        record: What the policy was asked and said, which the session does not know in full.
    """

    def __init__(self, session: Session) -> None:
        self.record: Record = Record()
        self._session = session
        self._context = get_rollout_context()

    @override
    async def get_sample(self) -> RolloutSample:
        """Return the whole conversation, in the SDK's form and in chat-completions form.

        Raises:
            PolicyError: the endpoint failed inside a tool, and the run went on to its end.
            RuntimeError: the policy was called, but nothing has gone through the session.
        """
        self.record.raise_outage()
        # Sessions that are bound to a rollout are only open inside of it.
        with self._context or nullcontext():
            items = cast("list[Item]", await self._session.get_items())
        if self.record.turns and not items:
            msg = (
                "the policy has answered, but the rollout's session is empty: pass "
                "session=OsmosisMemorySession() to Runner.run(), the same one in the whole rollout"
            )
            raise RuntimeError(msg)
        whole = self.record.complete(items)
        return RolloutSample(messages=whole, trajectory_messages=self._archived(whole))

    async def state(self) -> State:
        """Return how many items the session holds, and the last of them."""
        if isinstance(self._session, OsmosisMemorySession):
            return self._session.state
        return _state_of(cast("list[Item]", await self._session.get_items()))

    def _archived(self, items: Sequence[Item]) -> list[MessageDict] | None:
        try:
            return self.record.archive(items)
        except Exception as error:  # datasets and tools may hold anything; the sample survives
            _log.warning(
                "The conversation cannot be put into chat-completions form (%s: %s): no trajectory "
                "will be saved for this sample.",
                type(error).__name__,
                error,
            )
            return None


def _state_of(items: Sequence[Item]) -> State:
    return len(items), items[-1] if items else None
