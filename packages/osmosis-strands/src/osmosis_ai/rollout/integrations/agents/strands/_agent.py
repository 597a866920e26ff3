"""The agent class that binds the placeholder to the rollout it is built in."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, cast, override

from strands import Agent
from strands.models import Model

from osmosis_ai.rollout import RolloutContext, get_rollout_context
from osmosis_ai.rollout.integrations.agents.strands._delegations import Delegations
from osmosis_ai.rollout.integrations.agents.strands._from_chat import Translated, from_chat
from osmosis_ai.rollout.integrations.agents.strands._guard import Guard
from osmosis_ai.rollout.integrations.agents.strands._memory import Memory, Origin
from osmosis_ai.rollout.integrations.agents.strands._model import BoundModel, OsmosisRolloutModel
from osmosis_ai.rollout.integrations.agents.strands._source import StrandsSampleSource
from osmosis_ai.rollout.integrations.agents.strands._to_chat import to_chat
from osmosis_ai.rollout.integrations.agents.strands._transcript import Transcript


class OsmosisStrandsAgent(Agent):
    """A `strands.Agent` that calls the rollout's policy and tells the rollout its conversation.

    With an `OsmosisRolloutModel`, it is bound to the active rollout and registered as its sample
    source; build one per rollout, inside `run()`. With any other model, such as `agent.model` of
    the rollout's agent for a sub-agent, it is a plain agent and registers nothing.

    Args:
        args: Positional arguments of `strands.Agent`: model, messages, tools, system prompt...
        messages: The history to start with: chat-completions messages as in `ctx.prompt`, Strands
            messages, or both.
        model: The placeholder, or any Strands model.
        kwargs: Keyword arguments of `strands.Agent`.

    Raises:
        RuntimeError: there is a placeholder to bind but no active RolloutContext.
        ValueError: the rollout has a sample source already, or a message has no Strands form.
    """

    def __init__(
        self,
        *args: Any,
        messages: Sequence[Mapping[str, Any]] | None = None,
        model: Model | str | None = None,
        **kwargs: Any,
    ) -> None:
        model, messages, others = _arguments(args, model, messages)
        history = from_chat(messages or [])
        context: RolloutContext | None = None
        if isinstance(model, OsmosisRolloutModel):
            context = _active_context()
            model = BoundModel(model.settings, context)
        turns: Any = [turn.message for turn in history]
        super().__init__(model, turns, *others, **kwargs)  # pyright: ignore[reportUnknownMemberType]
        if isinstance(model, BoundModel):
            _remember(history, model.memory)
            transcript, delegations = Transcript(), Delegations()
            if context is not None:
                self.hooks.add_hook(transcript)
                self.hooks.add_hook(delegations)
            # Strands calls hooks in reverse after a tool, and the others forget what was running.
            self.hooks.add_hook(Guard(model))
            # Last, so that a constructor that failed has registered nothing.
            if context is not None:
                context.set_sample_source(
                    StrandsSampleSource(self, model.memory, transcript, delegations)
                )

    @override
    def stream_async(self, prompt: Any = None, **kwargs: Any) -> AsyncIterator[Any]:
        """Run the agent and yield its events; every other way of running it comes through here.

        Args:
            prompt: What Strands takes, or messages as in the constructor, such as `ctx.prompt`.
            kwargs: Keyword arguments of `strands.Agent.stream_async`.

        Raises:
            ValueError: a message has no Strands form.
        """
        if _is_conversation(prompt):
            history = from_chat(prompt)
            if isinstance(self.model, BoundModel):
                _remember(history, self.model.memory)
            prompt = [turn.message for turn in history]
        return super().stream_async(prompt, **kwargs)


def _is_conversation(prompt: Any) -> bool:
    if not isinstance(prompt, list) or not prompt:
        return False
    return all(isinstance(item, dict) and "role" in item for item in cast("list[Any]", prompt))


def _arguments(
    args: tuple[Any, ...], model: Any, messages: Any
) -> tuple[Model | str | None, Sequence[Mapping[str, Any]] | None, tuple[Any, ...]]:
    """Return model, messages and the other positional arguments; Strands takes them in that order.

    Raises:
        TypeError: an argument was given twice.
    """
    named = [model, messages]
    for place, (name, value) in enumerate(zip(("model", "messages"), args, strict=False)):
        if named[place] is not None:
            msg = f"OsmosisStrandsAgent got two values for {name!r}"
            raise TypeError(msg)
        named[place] = value
    return named[0], named[1], args[2:]


def _active_context() -> RolloutContext:
    context = get_rollout_context()
    if context is None:
        msg = (
            "OsmosisRolloutModel stands for the policy of a rollout, but no RolloutContext is "
            "active: build the OsmosisStrandsAgent inside run(), once per rollout"
        )
        raise RuntimeError(msg)
    return context


def _remember(history: Sequence[Translated], memory: Memory) -> None:
    for turn in history:
        wire = turn.chat or to_chat(turn.message)
        archive = turn.chat or to_chat(turn.message, archive=True)
        memory.remember(turn.message, Origin(wire, archive))
