"""The rollout server over HTTP."""
