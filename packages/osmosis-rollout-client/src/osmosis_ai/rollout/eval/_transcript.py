"""A rollout as people read it."""

import json
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from osmosis_ai.rollout.eval._console import say, say_below
from osmosis_ai.rollout.eval._journal import Entry
from osmosis_ai.rollout.eval._messages import Message, read_messages
from osmosis_ai.rollout.eval._outcomes import Outcome, OutcomeStatus
from osmosis_ai.rollout.eval._wording import (
    failure_of,
    files_of,
    findings_of,
    usage_of,
    verdict_of,
    work_of,
)

_COLOURS = {"system": "dim", "user": "cyan", "assistant": "green", "tool": "yellow"}


def show_rollout(entry: Entry, folder: Path, console: Console) -> None:
    """Print what one rollout said and did, and what came of it.

    Args:
        entry: The rollout.
        folder: Where its trajectory and artifacts lie, if they do.
        console: Where to print it.
    """
    for line, style in _head(entry.outcome):
        say(console, line, style)
    messages = read_messages((entry.sample or {}).get("messages") or [])
    if entry.sample is None:
        # Without a sample, what was asked is all there is.
        messages = read_messages(entry.prompt)
    for message in messages:
        _show_message(message, console)
    if entry.label is not None:
        say(console, "\nlabel", "bold")
        say_below(console, entry.label)
    for name, values in (("metadata", entry.metadata), ("metrics", _metrics(entry))):
        if values:
            say(console, f"\n{name}", "bold")
            say_below(console, json.dumps(values, ensure_ascii=False, indent=2))
    if files := [str(path) for path in files_of(folder)]:
        say(console, "\nfiles", "bold")
        say_below(console, "\n".join(files))


def _head(outcome: Outcome) -> Iterator[tuple[str, str]]:
    model = f", {outcome.model}" if outcome.model else ""
    yield (
        f"rollout {outcome.rollout_id}: row {outcome.row}, attempt {outcome.attempt}{model}",
        "bold",
    )
    good = outcome.status is OutcomeStatus.SUCCESS
    yield verdict_of(outcome), "green" if good else "red"
    if failure := failure_of(outcome):
        yield failure, "red"
    if work := work_of(outcome):
        yield work, "dim"
    if found := findings_of(outcome):
        yield found, "yellow"


def _show_message(message: Message, console: Console) -> None:
    colour = _COLOURS.get(message.role, "magenta")
    of = f" {message.call_id}" if message.call_id else ""
    say(console, f"\n{message.role}{of}{' (error)' * message.failed}", f"bold {colour}")
    if message.reasoning:
        say_below(console, "reasoning", "dim")
        say_below(console, message.reasoning, "dim italic", depth=2)
    if message.text:
        say_below(console, message.text)
    for call in message.calls:
        of = f" {call.id}" if call.id else ""
        say_below(console, f"-> {call.name}{of} {call.arguments}", colour)
    if usage := usage_of(message):
        say_below(console, usage, "dim")


def _metrics(entry: Entry) -> object:
    return (entry.sample or {}).get("metrics")
