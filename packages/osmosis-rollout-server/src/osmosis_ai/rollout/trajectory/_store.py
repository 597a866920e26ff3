"""Documents as files beside a rollout's artifacts."""

import asyncio
import logging
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import orjson
from pydantic import ValidationError

from osmosis_ai.rollout.artifacts import artifact_root_from_env, replace_file
from osmosis_ai.rollout.trajectory._convert import RolloutFacts, build_document
from osmosis_ai.rollout.trajectory._json import JsonObject, clean
from osmosis_ai.rollout.trajectory._models import Step, Trajectory
from osmosis_ai.rollout.trajectory._report import TrajectoryReport
from osmosis_ai.rollout.types import ExecutionResult, RolloutSample, check_path_segment

TRAJECTORY_FILE: Final = "trajectory.json"
DIAGNOSTICS_FILE: Final = "diagnostics.json"

# People do not read larger documents in an editor, and indents would make up much of them.
_LARGEST_INDENTED: Final = 1 << 20
# A line break is never part of a JSON string, so nothing inside of a string can match.
_NUMBER_LIST = re.compile(rb'\[\n\s+([^\[\]{}"]+?)\n\s*\]')

_log = logging.getLogger(__name__)


async def save_trajectory(
    *,
    rollout_id: str,
    result: ExecutionResult,
    request_label: str | None = None,
    request_metadata: Mapping[str, Any] | None = None,
    request_extra_fields: Mapping[str, Any] | None = None,
    initial_messages: Sequence[Mapping[str, Any]] | None = None,
    report: TrajectoryReport | None = None,
    artifact_root: str | os.PathLike[str] | None = None,
    diagnostics: Mapping[str, Any] | None = None,
    grading_skipped: str | None = None,
) -> None:
    """Save what is known of a rollout below `<artifact_root>/<rollout_id>/`.

    `trajectory.json` holds the result's sample as an ATIF document (Agent Trajectory Interchange
    Format, https://www.harborframework.com/docs/agents/trajectory-format), with the bytes of images
    and sounds in files beside it; `diagnostics.json` holds the diagnostics. A later call replaces
    the files, each one atomically; what it has no content for stays as it is. All the work happens
    off the event loop. Nothing is raised: problems are warnings in the log, without any content.

    Args:
        rollout_id: The rollout's id, one path segment.
        result: The latest result. Without a sample, or with an empty one, no document is written;
            a sample whose `trajectory_messages` is None asks for none.
        request_label: The request's label, used where the sample has none.
        request_metadata: The request's metadata.
        request_extra_fields: The request's extra fields.
        initial_messages: The request's messages: turns that came in with them get no metrics.
        report: What the trainer told of its model calls.
        artifact_root: The directory that holds the rollouts' folders; by default
            `_OSMOSIS_ROLLOUT_ARTIFACT_ROOT`, else `~/.osmosis`.
        diagnostics: The backend's diagnostics, by default the result's `extra_fields`.
        grading_skipped: Why a workflow that succeeded was not graded.
    """
    # The boundary that the docstring promises: an archive never disturbs a rollout.
    try:
        check_path_segment(rollout_id)
    except Exception as error:
        _log.warning("No trajectory is saved: the rollout id cannot name a folder (%s).", error)
        return
    try:
        facts = RolloutFacts(
            rollout_id=rollout_id,
            request_label=request_label,
            request_metadata=request_metadata,
            request_extra_fields=request_extra_fields,
            initial_messages=initial_messages,
            report=report,
            status=result.status,
            err_category=result.err_category,
            origin=result.origin,
            retryable=result.retryable,
            grading_skipped=grading_skipped,
        )
        if diagnostics is None:
            diagnostics = result.extra_fields
        root = None if artifact_root is None else Path(artifact_root)
        await asyncio.to_thread(_save, root, facts, result.sample, diagnostics)
    except Exception as error:
        _warn(rollout_id, "trajectory", error)


def _save(
    root: Path | None,
    facts: RolloutFacts,
    sample: RolloutSample | None,
    diagnostics: Mapping[str, Any] | None,
) -> None:
    root = artifact_root_from_env() if root is None else root
    # Values of user code are read here, and anything may come out of them, SystemExit too; no
    # cancellation reaches a thread. Neither file waits for the other.
    if diagnostics is not None:
        try:
            replace_file(root, facts.rollout_id, DIAGNOSTICS_FILE, encode(clean(diagnostics)))
        except BaseException as error:
            _warn(facts.rollout_id, "diagnostics", error)
    if sample is not None:
        try:
            _save_document(root, facts, sample)
        except BaseException as error:
            _warn(facts.rollout_id, "trajectory", error)


def _save_document(root: Path, facts: RolloutFacts, sample: RolloutSample) -> None:
    if sample.trajectory_messages is None:
        _log.info("Rollout %s asks for no trajectory: none is saved.", facts.rollout_id)
        return
    files: dict[str, bytes] = {}
    document = build_document(sample, facts, files)
    if document is None:
        return
    _check(document)
    for path, data in files.items():
        replace_file(root, facts.rollout_id, path, data)
    replace_file(root, facts.rollout_id, TRAJECTORY_FILE, encode(document))


def _check(document: JsonObject) -> None:
    """Refuse a document that strict readers would not take, before it replaces an earlier one.

    Models of a whole document would be a second copy of it in memory, for nothing; the steps are
    therefore checked one by one.
    """
    steps = document["steps"]
    for step in steps:
        Step.model_validate(step)
    Trajectory.model_validate({**document, "steps": steps[:1]})


def encode(document: Any) -> bytes:
    """Encode plain JSON: indented, lists of plain numbers on one line; compact when it is large."""
    compact = orjson.dumps(document)
    if len(compact) > _LARGEST_INDENTED:
        return compact
    indented = orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    return _NUMBER_LIST.sub(lambda found: b"[%b]" % b" ".join(found[1].split()), indented)


def _warn(rollout_id: str, what: str, error: BaseException) -> None:
    # An error's own text may quote what it failed on, except for these two.
    reason = type(error).__name__
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_context=False)[0]
        reason = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    elif isinstance(error, OSError):
        reason = str(error)
    _log.warning("The %s of rollout %s was not saved (%s).", what, rollout_id, reason)
