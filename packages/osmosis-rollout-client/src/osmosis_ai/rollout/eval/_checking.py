"""`osmosis-rollout check`: everything that is wrong with datasets."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from osmosis_ai.rollout.eval._console import say, stdout
from osmosis_ai.rollout.eval._dataset import scan_dataset
from osmosis_ai.rollout.eval._errors import DatasetError


def check_datasets(paths: Iterable[Path], *, as_json: bool) -> bool:
    """Print what is wrong with each dataset as it is found; tell whether nothing is.

    Args:
        paths: The files.
        as_json: Whether to print a JSON object per fault, and nothing else.
    """
    return not sum([_check(path, as_json=as_json) for path in paths])


def _check(path: Path, *, as_json: bool) -> int:
    """Return how many faults a file has."""
    console = stdout()
    rows = faults = 0
    for item in scan_dataset(path):
        if isinstance(item, DatasetError):
            faults += 1
            say(console, json.dumps(_as_json(item)) if as_json else str(item))
        else:
            rows += 1
    if not as_json:
        found = f"{faults} faults" if faults != 1 else "1 fault"
        say(console, f"{path}: {rows} rows can be used, {found}")
    return faults


def _as_json(fault: DatasetError) -> dict[str, Any]:
    return {
        "file": str(fault.path),
        "row": fault.row,
        "line": fault.line,
        "column": fault.column,
        "problem": fault.problem,
    }
