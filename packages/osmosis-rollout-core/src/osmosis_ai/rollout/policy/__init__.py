"""The client through which agents call the current policy."""

from osmosis_ai.rollout.policy._errors import PolicyError

__all__ = ["PolicyError"]
