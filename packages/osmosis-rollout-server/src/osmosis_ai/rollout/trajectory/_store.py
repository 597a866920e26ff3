"""Documents as files beside a rollout's artifacts."""

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from osmosis_ai.rollout.artifacts import RolloutFolder, Writer, artifact_root_from_env
from osmosis_ai.rollout.threads import off_loop
from osmosis_ai.rollout.trajectory._check import RefusedDocumentError, check_document
from osmosis_ai.rollout.trajectory._convert import RolloutFacts, build_document
from osmosis_ai.rollout.trajectory._encode import (
    encode,
    encode_large,
    encode_small,
    write_compressed,
)
from osmosis_ai.rollout.trajectory._json import JsonObject, clean
from osmosis_ai.rollout.trajectory._report import TrajectoryReport
from osmosis_ai.rollout.types import ExecutionResult, RolloutSample, check_path_segment

TRAJECTORY_FILE: Final = "trajectory.json"
DIAGNOSTICS_FILE: Final = "diagnostics.json"

COMPRESSED_FILE: Final = "trajectory.json.gz"

COMPRESSION_VARIABLE: Final = "_OSMOSIS_ROLLOUT_TRAJECTORY_COMPRESSION"

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
    fresh: bool = False,
) -> None:
    """Save what is known of a rollout below `<artifact_root>/<rollout_id>/`.

    `trajectory.json` holds the result's sample as an ATIF document (Agent Trajectory Interchange
    Format, https://www.harborframework.com/docs/agents/trajectory-format), with the bytes of images
    and sounds in files beside it; `diagnostics.json` holds the diagnostics. A later call replaces
    the files, each one atomically; what it has no content for stays as it is. With
    `_OSMOSIS_ROLLOUT_TRAJECTORY_COMPRESSION=gzip` the document is `trajectory.json.gz` instead;
    `read_trajectory` opens both. All the work happens off the event loop, in threads of the
    archive's own. Nothing is raised: problems are warnings in the log, without any content.

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
        fresh: Whether nothing was saved of this rollout yet. What lies in the files' places then
            passes for ours but is user code's: it is renamed to `<name>.displaced-<n>` first.
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
        await off_loop(_save, root, facts, result.sample, diagnostics, fresh=fresh)
    except Exception as error:
        _warn(rollout_id, "trajectory", error)


def _save(
    root: Path | None,
    facts: RolloutFacts,
    sample: RolloutSample | None,
    diagnostics: Mapping[str, Any] | None,
    *,
    fresh: bool,
) -> None:
    root = artifact_root_from_env() if root is None else root
    with RolloutFolder(root, facts.rollout_id) as folder:
        if fresh:
            _displace_forgeries(folder, facts.rollout_id)
        # Values of user code are read here, and anything may come out of them, SystemExit too; no
        # cancellation reaches a thread. Neither file waits for the other.
        if diagnostics is not None:
            try:
                folder.replace(DIAGNOSTICS_FILE, b"".join(encode(clean(diagnostics))))
            except BaseException as error:
                _warn(facts.rollout_id, "diagnostics", error)
        if sample is not None:
            try:
                _save_document(folder, facts, sample, fresh=fresh)
            except BaseException as error:
                _warn(facts.rollout_id, "trajectory", error)


def _displace_forgeries(folder: RolloutFolder, rollout_id: str) -> None:
    try:
        folder.displace((TRAJECTORY_FILE, COMPRESSED_FILE, DIAGNOSTICS_FILE))
    except OSError as error:
        _log.warning(
            "Rollout %s: what is in place of its files stays there: %s.", rollout_id, error
        )


def _save_document(
    folder: RolloutFolder, facts: RolloutFacts, sample: RolloutSample, *, fresh: bool
) -> None:
    if sample.trajectory_messages is None:
        _log.info("Rollout %s asks for no trajectory: none is saved.", facts.rollout_id)
        return
    try:
        _build_and_write(folder, facts, sample, fresh=fresh, trust=True)
    except OSError:
        raise
    except Exception:
        # Among what begins like a list of numbers there may be anything.
        _build_and_write(folder, facts, sample, fresh=fresh, trust=False)


def _build_and_write(
    folder: RolloutFolder, facts: RolloutFacts, sample: RolloutSample, *, fresh: bool, trust: bool
) -> None:
    files: dict[str, bytes] = {}
    document = build_document(sample, facts, files, trust=trust)
    if document is None:
        return
    check_document(document)
    for path, data in files.items():
        folder.replace(path, data)
    name, content = _file_of(document)
    folder.replace(name, content)
    if not fresh:
        # What lies under the other name is older, or not ours.
        folder.remove(TRAJECTORY_FILE if name == COMPRESSED_FILE else COMPRESSED_FILE)


def _file_of(document: JsonObject) -> tuple[str, bytes | Writer]:
    """Return the name and the content of a document's file, in the form that was chosen."""
    if _compression_from_env():
        return COMPRESSED_FILE, lambda file: write_compressed(encode(document), file)
    small = encode_small(document)
    if small is not None:
        return TRAJECTORY_FILE, small
    return TRAJECTORY_FILE, lambda file: file.writelines(encode_large(document))


def _compression_from_env() -> bool:
    chosen = os.environ.get(COMPRESSION_VARIABLE, "")
    if chosen not in ("", "none", "gzip"):
        _log.warning("%s is neither gzip nor none: not compressed.", COMPRESSION_VARIABLE)
    return chosen == "gzip"


def _warn(rollout_id: str, what: str, error: BaseException) -> None:
    # An error's own text may quote what it failed on, except for these two.
    is_plain = isinstance(error, OSError | RefusedDocumentError)
    reason = str(error) if is_plain else type(error).__name__
    _log.warning("The %s of rollout %s was not saved (%s).", what, rollout_id, reason)
