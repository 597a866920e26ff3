"""Runs that lie on disk."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from osmosis_ai.rollout.eval._files import RunFiles
from osmosis_ai.rollout.eval._journal import Entry, read_journal
from osmosis_ai.rollout.eval._metrics import Tally
from osmosis_ai.rollout.eval._outcomes import Outcome, Place

_PLACE = re.compile(r"([0-9]+)(?:\.([0-9]+))?")

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

    @classmethod
    def named(cls) -> list["StoredRun"]:
        """Return the runs that lie in `RUNS`, the newest first."""
        manifests = sorted(RUNS.glob("*/manifest.json"), key=lambda path: path.stat().st_mtime)
        return [cls.find(str(path.parent)) for path in reversed(manifests)]

    @property
    def name(self) -> str:
        """What people call it."""
        return self.files.path.absolute().name

    @property
    def models(self) -> list[str | None]:
        """The recorded model of each attempt, or None where the attempts are alike."""
        return list(self.manifest["attempts"])

    @property
    def total(self) -> int:
        """How many attempts at rows it has, ended or not."""
        return int(self.manifest["total"])

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

    def find_entry(self, rollout: str) -> Entry | None:
        """Return what became of a rollout, by its id, or by its row and attempt such as 7.2.

        Raises:
            EvalError: the journal cannot be read.
        """
        places = _PLACE.fullmatch(rollout)
        for entry in self.entries():
            outcome = entry.outcome
            if outcome.rollout_id == rollout:
                return entry
            if places and outcome.place == (int(places[1]), int(places[2] or 1)):
                return entry
        return None

    def tally(self) -> Tally:
        """Return its numbers.

        Raises:
            EvalError: the journal cannot be read.
        """
        return Tally.of(self.outcomes(), self.models)
