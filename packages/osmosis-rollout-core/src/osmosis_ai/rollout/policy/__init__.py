"""The client through which agents call the current policy.

One streaming route, `POST <url>/chat/completions`, spoken strictly: what comes back is one whole
answer of the policy, or an error. aiohttp is imported at the first call.
"""

from osmosis_ai.rollout.context import RolloutEndedError
from osmosis_ai.rollout.policy._client import PolicyClient
from osmosis_ai.rollout.policy._errors import PolicyError
from osmosis_ai.rollout.policy._pool import close_policy_clients
from osmosis_ai.rollout.policy._reply import PolicyPiece, PolicyReply, ToolCallPiece

__all__ = [
    "PolicyClient",
    "PolicyError",
    "PolicyPiece",
    "PolicyReply",
    "RolloutEndedError",
    "ToolCallPiece",
    "close_policy_clients",
]
