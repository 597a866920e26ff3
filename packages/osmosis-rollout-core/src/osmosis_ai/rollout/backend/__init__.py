"""Backends: what runs a rollout, and how they tell their progress."""

from osmosis_ai.rollout.backend.base import (
    ExecutionBackend,
    StatusReporter,
    report_status,
    reporting_to,
)
from osmosis_ai.rollout.backend.local import LocalBackend

__all__ = ["ExecutionBackend", "LocalBackend", "StatusReporter", "report_status", "reporting_to"]
