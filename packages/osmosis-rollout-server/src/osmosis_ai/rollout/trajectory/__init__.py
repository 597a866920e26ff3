"""ATIF trajectories: models, conversion and storage."""
