"""The client of a rollout server."""
