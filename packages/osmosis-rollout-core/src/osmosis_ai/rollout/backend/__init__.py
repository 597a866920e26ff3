"""Backends: what runs a rollout, and how they tell their progress."""

from osmosis_ai.rollout.backend.base import (
    ExecutionBackend,
    StatusReporter,
    report_status,
    reporting_to,
)

__all__ = ["ExecutionBackend", "StatusReporter", "report_status", "reporting_to"]
