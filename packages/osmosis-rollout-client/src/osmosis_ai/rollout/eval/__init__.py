"""Local evaluation of rollout servers."""
