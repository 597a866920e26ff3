"""A rollout on a page of HTML."""

import json
from html import escape
from pathlib import Path
from urllib.parse import quote

from osmosis_ai.rollout.eval._console import printable
from osmosis_ai.rollout.eval._journal import Entry
from osmosis_ai.rollout.eval._messages import Message, read_messages
from osmosis_ai.rollout.eval._outcomes import Outcome, OutcomeStatus
from osmosis_ai.rollout.eval._stored import StoredRun
from osmosis_ai.rollout.eval._wording import (
    failure_of,
    files_of,
    findings_of,
    usage_of,
    verdict_of,
    work_of,
)


def text(foreign: str) -> str:
    """Return foreign text for a page: nothing in it is markup, or misleads the reader."""
    return escape(printable(foreign))


def coloured(outcome: Outcome, words: str) -> str:
    """Return words on a rollout: coloured where it passed, and where it did not end in success."""
    style = "good" if outcome.passed else ""
    if outcome.status is not OutcomeStatus.SUCCESS:
        style = "bad"
    return f'<span class="{style}">{text(words)}</span>'


def transcript(entry: Entry, run: StoredRun) -> str:
    """Return a rollout as an element that opens; links to it lead to its id."""
    outcome = entry.outcome
    sample = entry.sample or {"messages": entry.prompt, "metrics": None}
    parts = [
        _quiet(work_of(outcome)),
        _pre(findings_of(outcome)),
        *map(_message, read_messages(sample["messages"])),
        _titled("label", entry.label or ""),
        _titled("metadata", _json(entry.metadata)),
        _titled("metrics", _json(sample["metrics"])),
        _links(run.files.path, run.files.rollouts / outcome.rollout_id),
    ]
    if failure := failure_of(outcome):
        parts.insert(0, f'<div class="bad">{_pre(failure)}</div>')
    return _opening(outcome, "".join(parts))


def reference(entry: Entry, run: StoredRun) -> str:
    """Return what stands for a transcript that a page has no room for."""
    command = f"osmosis-rollout show {entry.outcome.rollout_id} --run {run.files.path}"
    return _opening(entry.outcome, _quiet(f"This page has no room for it: {command}"))


def _opening(outcome: Outcome, content: str) -> str:
    model = f", {text(outcome.model)}" if outcome.model else ""
    return (
        f"<details><summary>row {outcome.row}, attempt {outcome.attempt}{model}: "
        f"{coloured(outcome, verdict_of(outcome))} "
        f'<span class="quiet">{text(outcome.rollout_id)}</span></summary>'
        # A link to what is inside opens it.
        f'<div id="{text(outcome.rollout_id)}">{content}</div></details>'
    )


def _message(message: Message) -> str:
    error = ' <span class="bad">error</span>' if message.failed else ""
    of = f' <span class="quiet">{text(message.call_id)}</span>' if message.call_id else ""
    parts = [
        f'<div class="role">{text(message.role)}{of}{error}</div>',
        f'<div class="thought">{_pre(message.reasoning)}</div>' if message.reasoning else "",
        _pre(message.text),
        *(_pre(f"\u2192 {call.name} {call.id} {call.arguments}") for call in message.calls),
        _quiet(usage_of(message)),
    ]
    return "".join(parts)


def _titled(title: str, content: str) -> str:
    return f'<div class="role">{title}</div>{_pre(content)}' if content else ""


def _quiet(content: str) -> str:
    return f'<div class="quiet">{_pre(content)}</div>' if content else ""


def _pre(content: str) -> str:
    return f"<pre>{text(content)}</pre>" if content else ""


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2) if value else ""


def _links(run: Path, folder: Path) -> str:
    # Relative, so that they hold wherever the run's directory is moved.
    names = [path.relative_to(run).as_posix() for path in files_of(folder)]
    links = [f'<li><a href="{quote(name)}">{text(name)}</a></li>' for name in names]
    return f'<div class="role">files</div><ul>{"".join(links)}</ul>' if links else ""
