"""The client of a rollout server: start rollouts, follow them, get their results."""

from osmosis_ai.rollout.client._client import RolloutClient
from osmosis_ai.rollout.client._errors import RolloutAdmissionTimeoutError, RolloutProtocolError
from osmosis_ai.rollout.client._handle import RolloutHandle

__all__ = [
    "RolloutAdmissionTimeoutError",
    "RolloutClient",
    "RolloutHandle",
    "RolloutProtocolError",
]
