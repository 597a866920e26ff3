"""The OpenAI Agents SDK on the policy of a rollout: the agent class, its model and its session."""

from osmosis_ai.rollout.integrations.agents.openai_agents._agent import OsmosisAgent
from osmosis_ai.rollout.integrations.agents.openai_agents._model import OsmosisRolloutModel
from osmosis_ai.rollout.integrations.agents.openai_agents._session import (
    OsmosisMemorySession,
    SessionSampleSource,
)

__all__ = [
    "OsmosisAgent",
    "OsmosisMemorySession",
    "OsmosisRolloutModel",
    "SessionSampleSource",
]
