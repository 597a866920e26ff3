"""The run's directory: what is written, and when."""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from osmosis_ai.rollout.eval._errors import EvalError, RunError
from osmosis_ai.rollout.eval._journal import Journal
from osmosis_ai.rollout.eval._manifest import check_same_inputs, checked_manifest
from osmosis_ai.rollout.eval._outcomes import Outcome


class RunFiles:
    """The files of a run by their names.

    - `manifest.json`: the run's inputs.
    - `results.jsonl`: each attempt as it ended by itself, with its sample; written before it
      counts, and never changed after that.
    - `recording.jsonl`: each call of the policy with its answer, where the run was recorded.
    - `index.jsonl`: a line per row and attempt, in their order; written at the end.
    - `metrics.json`: the run's numbers, likewise.
    - `report.html`: the same for people, with all transcripts; written by the command.
    - `rollouts/<rollout id>/`: trajectory and artifacts, where the run serves the app itself.
    - `server.log`: the output of that server.

    Args:
        path: The run's directory.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.manifest: Path = path / "manifest.json"
        self.journal: Path = path / "results.jsonl"
        self.recording: Path = path / "recording.jsonl"
        self.index: Path = path / "index.jsonl"
        self.metrics: Path = path / "metrics.json"
        self.page: Path = path / "report.html"
        self.rollouts: Path = path / "rollouts"
        self.server_log: Path = path / "server.log"

    def read_manifest(self) -> dict[str, Any]:
        """Return the run's manifest.

        Raises:
            EvalError: there is none, or it cannot be used.
        """
        try:
            return checked_manifest(self.manifest, json.loads(self.manifest.read_bytes()))
        except ValueError:
            return checked_manifest(self.manifest, None)
        except OSError as error:
            msg = f"{self.path} is no run: {self.manifest.name}: {error.strerror or error}"
            raise EvalError(msg) from None

    def write_results(self, outcomes: Iterable[Outcome], metrics: Mapping[str, Any]) -> None:
        """Write a run's outcomes and its numbers.

        Raises:
            RunError: they cannot be written.
        """
        try:
            replace_file(self.index, (json.dumps(outcome.as_json()) for outcome in outcomes))
            replace_file(self.metrics, [json.dumps(metrics, indent=2)])
        except OSError as error:
            msg = f"{self.path}: the results cannot be written: {error.strerror or error}"
            raise RunError(msg) from None


class OpenRun:
    """A run that this process is at work on, with its journal open.

    Args:
        files: The run's files.
        manifest: Its manifest; one that is there already must have the same inputs.
        fresh: Whether a run that is there already is set aside.

    Raises:
        EvalError: another process is at work on it, its inputs have changed, the directory holds
            something else, or it cannot be written.
    """

    def __init__(self, files: RunFiles, manifest: Mapping[str, Any], *, fresh: bool) -> None:
        self.files = files
        try:
            if fresh:
                _set_aside(files)
            files.path.mkdir(parents=True, exist_ok=True)
            self.resumed: bool = _is_run(files)
            self.journal: Journal = Journal(files.journal)
            try:
                self._settle_manifest(manifest)
            except BaseException:
                self.journal.close()
                raise
        except OSError as error:
            msg = f"{files.path}: the run's directory cannot be written: {error.strerror or error}"
            raise EvalError(msg) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.journal.close()

    def _settle_manifest(self, manifest: Mapping[str, Any]) -> None:
        if self.files.manifest.exists():
            old = self.files.read_manifest()
            # Where nothing has ended, as when the app did not start, nothing can get mixed.
            if self.files.journal.stat().st_size:
                check_same_inputs(self.files.path, old["inputs"], manifest["inputs"])
                return
        replace_file(self.files.manifest, [json.dumps(manifest, indent=2)])


def replace_file(path: Path, lines: Iterable[str]) -> None:
    """Write a file of lines that is whole at any moment, the old one or the new one.

    Raises:
        OSError: it cannot be written.
    """
    half = path.with_name(f".{path.name}.half")
    with half.open("w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)
        file.flush()
        os.fsync(file.fileno())
    half.replace(path)


def _is_run(files: RunFiles) -> bool:
    """Tell whether there is a run already; a directory with anything else in it is refused."""
    found = {path.name for path in files.path.iterdir()}
    # A process that was lost while it began leaves a journal without a manifest.
    ours = {files.journal.name, f".{files.manifest.name}.half"}
    if found - ours and files.manifest.name not in found:
        msg = f"{files.path} is not empty, and no run: give the run a directory of its own"
        raise EvalError(msg)
    return files.manifest.name in found


def _set_aside(files: RunFiles) -> None:
    if not files.path.exists():
        return
    if _is_run(files):
        # Whoever is at work on it goes on holding its lock.
        Journal(files.journal).close()
        number = 1
        while (kept := files.path.with_name(f"{files.path.name}.{number}")).exists():
            number += 1
        files.path.rename(kept)
