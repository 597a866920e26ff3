"""Arrow, loaded when it is first needed: it is an extra, and its import takes long."""

import importlib
from typing import Any

from osmosis_ai.rollout.eval._errors import EvalError


def load_arrow(module: str = "pyarrow") -> Any:
    """Return a module of pyarrow.

    Raises:
        EvalError: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "pyarrow":
            raise
        msg = "Parquet needs pyarrow: pip install 'osmosis-rollout-client[parquet]'"
        raise EvalError(msg) from None
