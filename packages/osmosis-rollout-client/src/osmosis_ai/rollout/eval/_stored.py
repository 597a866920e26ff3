"""Runs that lie on disk."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from osmosis_ai.rollout.eval._errors import EvalError
from osmosis_ai.rollout.eval._files import RunFiles
from osmosis_ai.rollout.eval._journal import Entry, read_journal
from osmosis_ai.rollout.eval._metrics import Tally
from osmosis_ai.rollout.eval._outcomes import Outcome, Place

RUNS = Path("osmosis-runs")
"""Where runs lie that were given a name, or none at all."""


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run, ended or not.

    Attributes:
        files: Its files.
        manifest: Its manifest.
    """

    files: RunFiles
    manifest: Mapping[str, Any]

    @classmethod
    def find(cls, run: str) -> "StoredRun":
        """Return the run of a directory, or of a name.

        Raises:
            EvalError: there is none.
        """
        path = Path(run)
        if not path.is_dir() and (RUNS / run).is_dir():
            path = RUNS / run
        files = RunFiles(path)
        return cls(files, files.read_manifest())

    @property
    def name(self) -> str:
        """What people call it."""
        return self.files.path.absolute().name

    @property
    def models(self) -> list[str | None]:
        """The recorded model of each attempt, or None where the attempts are alike."""
        return list(self.manifest["attempts"])

    def outcomes(self) -> list[Outcome]:
        """Return the outcomes that the run has so far, by row and attempt.

        Raises:
            EvalError: the journal cannot be read.
        """
        latest: dict[Place, Outcome] = {}
        for entry in read_journal(self.files.journal):
            latest[entry.outcome.place] = entry.outcome
        return [latest[place] for place in sorted(latest)]

    def entries(self) -> Iterator[Entry]:
        """Yield what became of each attempt at each row, in the order in which they ended.

        Raises:
            EvalError: the journal cannot be read.
        """
        latest = {outcome.rollout_id for outcome in self.outcomes()}
        for entry in read_journal(self.files.journal):
            if entry.outcome.rollout_id in latest:
                yield entry

    def entry(self, rollout_id: str) -> Entry:
        """Return one rollout's.

        Raises:
            EvalError: there is none of this id, or the journal cannot be read.
        """
        for entry in read_journal(self.files.journal):
            if entry.outcome.rollout_id == rollout_id:
                return entry
        msg = f"run {self.name} has no rollout {rollout_id}: its index.jsonl names them"
        raise EvalError(msg)

    def tally(self) -> Tally:
        """Return its numbers.

        Raises:
            EvalError: the journal cannot be read.
        """
        return Tally.of(self.outcomes(), self.models)
