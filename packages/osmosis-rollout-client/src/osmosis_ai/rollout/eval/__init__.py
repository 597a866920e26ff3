"""Local evaluation of rollout servers."""

from osmosis_ai.rollout.eval._course import Listener, RunReport
from osmosis_ai.rollout.eval._dataset import DatasetRow, read_dataset, scan_dataset
from osmosis_ai.rollout.eval._errors import DatasetError, EvalError, RunError
from osmosis_ai.rollout.eval._evaluate import evaluate
from osmosis_ai.rollout.eval._options import EvalOptions
from osmosis_ai.rollout.eval._outcomes import Outcome, OutcomeStatus
from osmosis_ai.rollout.eval._policy import Endpoint, Policy
from osmosis_ai.rollout.eval._statistics import pass_at_k

__all__ = [
    "DatasetError",
    "DatasetRow",
    "Endpoint",
    "EvalError",
    "EvalOptions",
    "Listener",
    "Outcome",
    "OutcomeStatus",
    "Policy",
    "RunError",
    "RunReport",
    "evaluate",
    "pass_at_k",
    "read_dataset",
    "scan_dataset",
]
