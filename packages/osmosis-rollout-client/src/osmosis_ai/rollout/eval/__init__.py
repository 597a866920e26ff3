"""Local evaluation of rollout servers."""

from osmosis_ai.rollout.eval._dataset import DatasetRow, read_dataset
from osmosis_ai.rollout.eval._errors import DatasetError, EvalError, RunError
from osmosis_ai.rollout.eval._evaluate import RunReport, evaluate
from osmosis_ai.rollout.eval._metrics import pass_at_k
from osmosis_ai.rollout.eval._options import EvalOptions
from osmosis_ai.rollout.eval._outcomes import Outcome, OutcomeStatus

__all__ = [
    "DatasetError",
    "DatasetRow",
    "EvalError",
    "EvalOptions",
    "Outcome",
    "OutcomeStatus",
    "RunError",
    "RunReport",
    "evaluate",
    "pass_at_k",
    "read_dataset",
]
