"""The manifest: which inputs a run has, so that nothing else is ever mixed into it."""

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit, urlunsplit

from osmosis_ai.rollout.eval._entrypoint import Entrypoint
from osmosis_ai.rollout.eval._errors import EvalError
from osmosis_ai.rollout.eval._options import EvalOptions
from osmosis_ai.rollout.eval._outcomes import Attempt
from osmosis_ai.rollout.eval._policy import Policy

FORMAT = 1
"""The layout of a run's directory; another one is not read."""


def manifest_of(
    options: EvalOptions,
    entrypoint: Entrypoint | None,
    policy: Policy,
    attempts: list[Attempt],
    rows: int,
) -> dict[str, Any]:
    """Return the manifest of a run that is about to start, as JSON without any key in it."""
    return {
        "format": FORMAT,
        "version": version("osmosis-rollout-client"),
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "dataset": str(options.dataset.absolute()),
        "total": rows * len(attempts),
        "attempts": [attempt.model for attempt in attempts],
        "entrypoint": entrypoint and [str(entrypoint.folder), entrypoint.reference],
        "inputs": {
            "dataset": _file_digest(options.dataset),
            "rows": str(options.selection or "all"),
            "limit": options.limit,
            "attempts": len(attempts),
            "policy": dict(policy.identity),
            "server": options.url and shown_url(options.url),
            "entrypoint": entrypoint and entrypoint.reference,
            "code": entrypoint and entrypoint.digest(),
            "env": options.env,
            "pass threshold": options.pass_threshold,
            "agent timeout": options.agent_timeout_sec,
            "grader timeout": options.grader_timeout_sec,
        },
    }


def check_same_inputs(run: Path, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Make sure that a run can be resumed.

    Raises:
        EvalError: its inputs are others now; the message names them.
    """
    changes = [_change(name, old.get(name), value) for name, value in new.items()]
    if told := [change for change in changes if change]:
        msg = (
            f"{run} cannot be resumed, for its inputs have changed: {'; '.join(told)}. "
            "Give the run another name, or --fresh to set the old one aside"
        )
        raise EvalError(msg)


def shown_url(url: str) -> str:
    """Return a URL without what may be secret in it: user, password and query."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def checked_manifest(path: Path, manifest: object) -> dict[str, Any]:
    """Return a manifest that was read from a file.

    Raises:
        EvalError: it is none, or of another layout.
    """
    value = cast("dict[str, Any]", manifest) if isinstance(manifest, dict) else {}
    if value.get("format") != FORMAT or not isinstance(value.get("inputs"), dict):
        msg = f"{path}: not the manifest of a run, or of another version's"
        raise EvalError(msg)
    return value


def _change(name: str, old: Any, new: Any) -> str | None:
    if old == new:
        return None
    # Digests tell people nothing, and of policies and environments the parts that differ do.
    if name in {"dataset", "code"} and old and new:
        return f"the content of the {name}"
    if isinstance(old, dict) and isinstance(new, dict):
        before, after = cast("dict[str, Any]", old), cast("dict[str, Any]", new)
        names = [key for key in before | after if before.get(key) != after.get(key)]
        return f"{name} ({', '.join(sorted(names))})"
    return f"{name} (was {old}, is {new})"


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
