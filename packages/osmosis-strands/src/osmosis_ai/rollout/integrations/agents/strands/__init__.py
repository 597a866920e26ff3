"""Strands Agents on the policy of a rollout: the agent class, and the placeholder for its model."""

from osmosis_ai.rollout.integrations.agents.strands._agent import OsmosisStrandsAgent
from osmosis_ai.rollout.integrations.agents.strands._model import OsmosisRolloutModel

__all__ = ["OsmosisRolloutModel", "OsmosisStrandsAgent"]
