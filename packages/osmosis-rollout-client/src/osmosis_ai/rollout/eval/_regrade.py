"""Grading the samples of a run anew, with a grader that has changed: no inference, new verdicts."""

from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from osmosis_ai.rollout.eval._course import Course, Listener, RunReport
from osmosis_ai.rollout.eval._dataset import DatasetRow
from osmosis_ai.rollout.eval._entrypoint import Entrypoint
from osmosis_ai.rollout.eval._errors import EvalError
from osmosis_ai.rollout.eval._files import OpenRun, RunFiles
from osmosis_ai.rollout.eval._journal import Entry
from osmosis_ai.rollout.eval._manifest import FORMAT
from osmosis_ai.rollout.eval._options import EvalOptions
from osmosis_ai.rollout.eval._outcomes import Attempt, Job
from osmosis_ai.rollout.eval._policies import RunningEndpoint
from osmosis_ai.rollout.eval._stored import StoredRun
from osmosis_ai.rollout.types import RolloutErrorOrigin

# Nobody listens there, and no grader asks the policy.
_NOWHERE = "http://127.0.0.1:9/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class RegradeOptions:
    """How to grade anew.

    Attributes:
        output: The directory of the new run.
        entrypoint: What has the grader; by default, what the old run served.
        python: The interpreter to serve it with; see `EvalOptions`.
        max_in_flight: How many gradings run at a time; see `EvalOptions`.
        pass_threshold: The reward from which an attempt counts as passed; by default the old one.
        grader_timeout_sec: Budget of each grading in seconds, or None.
    """

    output: Path
    entrypoint: str | None = None
    python: Path | None = None
    max_in_flight: int | None = None
    pass_threshold: float | None = None
    grader_timeout_sec: float | None = None


async def regrade(
    old: StoredRun, options: RegradeOptions, listener: Listener | None = None
) -> RunReport:
    """Grade all samples of a run that a workflow finished, and write a run of its own.

    Raises:
        EvalError: bad input; nothing ran.
        RunError: outcomes could not be written, or their counts do not add up.
    """
    entrypoint = _entrypoint(old, options.entrypoint)
    total = sum(1 for _ in _gradable(old))
    if not total:
        msg = f"run {old.name} has no sample to grade"
        raise EvalError(msg)
    inputs = _inputs(old, entrypoint, options)
    manifest = dict(old.manifest) | {
        "format": FORMAT,
        "version": version("osmosis-rollout-client"),
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "total": total,
        "entrypoint": [str(entrypoint.folder), entrypoint.reference],
        "inputs": inputs,
    }
    async with AsyncExitStack() as stack:
        run = stack.enter_context(OpenRun(RunFiles(options.output), manifest, fresh=False))
        course = Course(
            options=EvalOptions(
                dataset=Path(str(old.manifest["dataset"])),
                output=options.output,
                entrypoint=f"{entrypoint.folder / entrypoint.reference}",
                chat_url=_NOWHERE,
                python=options.python,
                max_in_flight=options.max_in_flight,
                pass_threshold=inputs["pass threshold"],
                grader_timeout_sec=options.grader_timeout_sec,
            ),
            entrypoint=entrypoint,
            policy=RunningEndpoint(_NOWHERE),
            models=old.models,
            run=run,
            jobs=lambda: _jobs(old),
            total=total,
            listener=listener or Listener(),
            regraded=old.files.path.absolute(),
        )
        return await course.take()


def _entrypoint(old: StoredRun, given: str | None) -> Entrypoint:
    if given is not None:
        return Entrypoint.parse(given)
    served: list[str] | None = old.manifest.get("entrypoint")
    if served is None:
        msg = f"run {old.name} served no app: name what has the grader, such as main.py:app"
        raise EvalError(msg)
    folder, reference = served
    return Entrypoint(Path(folder), reference)


def _inputs(old: StoredRun, entrypoint: Entrypoint, options: RegradeOptions) -> dict[str, Any]:
    threshold = options.pass_threshold
    if threshold is None:
        threshold = old.manifest["inputs"]["pass threshold"]
    return {
        "samples of": str(old.files.path.absolute()),
        "entrypoint": entrypoint.reference,
        "code": entrypoint.digest(),
        "pass threshold": threshold,
        "grader timeout": options.grader_timeout_sec,
    }


def _gradable(old: StoredRun) -> Iterator[Entry]:
    """Yield what has a sample of a workflow that succeeded, whether or not its grader did."""
    for entry in old.entries():
        failed_in_grader = entry.outcome.origin == RolloutErrorOrigin.GRADER
        if entry.sample is not None and (entry.outcome.origin is None or failed_in_grader):
            yield entry


def _jobs(old: StoredRun) -> Iterator[Job]:
    for entry in _gradable(old):
        was = entry.outcome
        row = DatasetRow(was.row, was.line, entry.prompt, entry.label, entry.metadata)
        yield Job(row, Attempt(was.attempt, was.model), was.rollout_id)
