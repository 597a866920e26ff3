"""The whole conversation of an agent, whatever its conversation manager removes from it."""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, override

from strands.hooks import (
    AfterInvocationEvent,
    AfterModelCallEvent,
    BeforeInvocationEvent,
    HookProvider,
    HookRegistry,
    MessageAddedEvent,
)
from strands.types.content import Message


class Transcript(HookProvider):
    """Follows an agent's history and keeps the turns that vanish from it while the agent works.

    What vanishes then was removed by a conversation manager. What the user's own code takes away
    between two invocations is gone from the transcript too. Strands' notice of a cancelled call is
    taken out of the history: it stands where an answer would stand, but the policy never said it.
    """

    def __init__(self) -> None:
        self._is_running = False
        self._was_cancelled = False
        self._known: list[Message] = []
        self._removed: list[Message] = []
        self._notice: Message | None = None

    @override
    def register_hooks(self, registry: HookRegistry, **kwargs: Any) -> None:
        registry.add_callback(BeforeInvocationEvent, self._before_invocation)
        registry.add_callback(AfterModelCallEvent, self._after_model_call)
        registry.add_callback(MessageAddedEvent, self._message_added)
        registry.add_callback(AfterInvocationEvent, self._after_invocation)

    def messages(self, held: Sequence[Message]) -> list[Message]:
        """Return the removed turns and those that the agent holds, in the order of their making.

        Args:
            held: The agent's messages as they are now.
        """
        removed = self._vanished(held) if self._is_running else self._removed
        return _merge(removed, held, self._known) if removed else [*held]

    def _vanished(self, held: Sequence[Message]) -> list[Message]:
        left = {_key(message) for message in held}
        known = {_key(message): message for message in self._known}
        return [message for key, message in known.items() if key not in left]

    def _before_invocation(self, event: BeforeInvocationEvent) -> None:
        self._known = self.messages(event.agent.messages)
        self._is_running = True

    def _after_model_call(self, event: AfterModelCallEvent) -> None:
        response = event.stop_response
        self._was_cancelled = response is not None and response.stop_reason == "cancelled"

    def _message_added(self, event: MessageAddedEvent) -> None:
        if self._was_cancelled:
            self._notice = event.message
        else:
            self._known.append(event.message)
        self._was_cancelled = False

    def _after_invocation(self, event: AfterInvocationEvent) -> None:
        held = event.agent.messages
        if self._notice is not None:
            held[:] = [message for message in held if message is not self._notice]
            self._notice = None
        self._removed = self._vanished(held)
        self._is_running = False


def _merge(
    removed: Sequence[Message], held: Sequence[Message], known: Sequence[Message]
) -> list[Message]:
    """Put the removed messages back to where they were; pinned ones may have stayed before them.

    A held message that is not known, such as a summary, comes after what it replaces.
    """
    order = {_key(message): place for place, message in enumerate(known)}
    waiting = deque(removed)
    merged: list[Message] = []
    for place, message in enumerate(held):
        later = (order[key] for key in map(_key, held[place:]) if key in order)
        upper = next(later, len(known))
        while waiting and order[_key(waiting[0])] < upper:
            merged.append(waiting.popleft())
        merged.append(message)
    return [*merged, *waiting]


def _key(message: Mapping[str, Any]) -> str | int:
    # Strands copies a message to extend it, but the copy keeps the tracking id.
    return message.get("tracking_id") or id(message)
