"""The run's directory: what is written, and when."""

import json
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from osmosis_ai.rollout.eval._errors import EvalError, RunError
from osmosis_ai.rollout.eval._outcomes import Outcome


class RunFiles:
    """A run's directory, with `results.jsonl` open in it.

    - `results.jsonl`: a line per row and attempt, written as it ends.
    - `metrics.json`: the run's numbers, written at its end.
    - `rollouts/<rollout id>/`: trajectory and artifacts, where the run serves the app itself.
    - `server.log`: the output of that server.

    Args:
        path: The directory; it is made where it is missing.

    Raises:
        EvalError: it holds something already, or cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rollouts = path / "rollouts"
        self.server_log = path / "server.log"
        self.metrics = path / "metrics.json"
        self.results = path / "results.jsonl"
        try:
            path.mkdir(parents=True, exist_ok=True)
            if any(path.iterdir()):
                msg = f"{path} is not empty: give the run a directory of its own with --output"
                raise EvalError(msg)
            self._lines = self.results.open("x", encoding="utf-8")
        except OSError as error:
            msg = f"{path}: the run's directory cannot be written: {error.strerror or error}"
            raise EvalError(msg) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with suppress(OSError):  # what could not be written has been reported
            self._lines.close()

    def add(self, outcome: Outcome) -> None:
        """Write one outcome's line, before anything else counts it.

        Raises:
            RunError: the line cannot be written.
        """
        try:
            self._lines.write(json.dumps(asdict(outcome)) + "\n")
            self._lines.flush()
        except OSError as error:
            raise _unwritable(self.results, error) from None

    def write_metrics(self, metrics: dict[str, Any]) -> None:
        """Write the run's numbers.

        Raises:
            RunError: they cannot be written.
        """
        try:
            self.metrics.write_text(json.dumps(metrics, indent=2) + "\n", encoding="utf-8")
        except OSError as error:
            raise _unwritable(self.metrics, error) from None


def _unwritable(path: Path, error: OSError) -> RunError:
    return RunError(f"{path}: cannot be written: {error.strerror or error}")
