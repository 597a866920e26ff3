"""The rollout server over HTTP."""

from osmosis_ai.rollout.server._app import create_rollout_server
from osmosis_ai.rollout.server._auth import ControllerAuth

__all__ = ["ControllerAuth", "create_rollout_server"]
