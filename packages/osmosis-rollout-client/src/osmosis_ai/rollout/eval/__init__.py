"""Local evaluation of rollout servers."""

from osmosis_ai.rollout.eval._dataset import DatasetRow, read_dataset
from osmosis_ai.rollout.eval._errors import DatasetError, EvalError

__all__ = ["DatasetError", "DatasetRow", "EvalError", "read_dataset"]
