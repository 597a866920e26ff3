"""The sample of a Strands agent."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, override

from strands import Agent

from osmosis_ai.rollout import MessageDict, RolloutSample, SampleSource
from osmosis_ai.rollout.integrations.agents.strands._delegations import Delegations
from osmosis_ai.rollout.integrations.agents.strands._memory import Memory, Origin, Recalled
from osmosis_ai.rollout.integrations.agents.strands._to_chat import chat_tools, to_chat
from osmosis_ai.rollout.integrations.agents.strands._transcript import Transcript
from osmosis_ai.rollout.types.copying import deep_copy

_log = logging.getLogger(__name__)


class StrandsSampleSource(SampleSource):
    """Tells the conversation of one agent.

    Args:
        agent: The agent.
        memory: Where its messages come from.
        transcript: What has followed its history from the start.
        delegations: What has followed its tool calls.
    """

    def __init__(
        self, agent: Agent, memory: Memory, transcript: Transcript, delegations: Delegations
    ) -> None:
        self._agent = agent
        self._memory = memory
        self._transcript = transcript
        self._delegations = delegations

    @override
    async def get_sample(self) -> RolloutSample:
        """Return the whole conversation, in Strands' form and in chat-completions form."""
        recalled = self._memory.recall(self._transcript.messages(self._agent.messages))
        return RolloutSample(
            messages=[_native(*one) for one in recalled],
            trajectory_messages=self._archived(recalled),
        )

    def _archived(self, recalled: Sequence[Recalled]) -> list[MessageDict] | None:
        try:
            turns = [*self._instructions(), *_archive(recalled)]
            self._delegations.attach(turns)
            tools = chat_tools(self._agent.tool_registry.get_all_tool_specs())
        except Exception as error:  # user blocks and tools may hold anything; the sample survives
            _log.warning(
                "The conversation cannot be put into chat-completions form (%s: %s): no trajectory "
                "will be saved for this sample.",
                type(error).__name__,
                error,
            )
            return None
        if tools and turns:
            turns[0]["tool_definitions"] = tools
        return turns

    def _instructions(self) -> list[MessageDict]:
        prompt = self._agent.system_prompt
        return [{"role": "system", "content": prompt}] if prompt else []


def _native(message: Mapping[str, Any], origin: Origin | None) -> MessageDict:
    turn = deep_copy(dict(message))
    if origin and origin.cut_calls:
        turn["content"] += deep_copy(origin.cut_calls)
        turn.setdefault("metadata", {}).setdefault("custom", {})["truncated"] = True
    return turn


def _archive(recalled: Sequence[Recalled]) -> list[MessageDict]:
    kept = [one.archive if one else to_chat(said, archive=True) for said, one in recalled]
    return deep_copy([turn for turns in kept for turn in turns])
