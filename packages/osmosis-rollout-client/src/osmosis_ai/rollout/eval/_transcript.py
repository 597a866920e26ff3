"""A rollout as people read it."""

import json
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from osmosis_ai.rollout.eval._console import printable
from osmosis_ai.rollout.eval._journal import Entry
from osmosis_ai.rollout.eval._messages import Message, read_messages
from osmosis_ai.rollout.eval._outcomes import Outcome, OutcomeStatus

_COLOURS = {"system": "dim", "user": "cyan", "assistant": "green", "tool": "yellow"}


def show_rollout(entry: Entry, folder: Path, console: Console) -> None:
    """Print what one rollout said and did, and what came of it.

    Args:
        entry: The rollout.
        folder: Where its trajectory and artifacts lie, if they do.
        console: Where to print it.
    """
    for line, style in _head(entry.outcome):
        _print(console, line, style)
    messages = read_messages((entry.sample or {}).get("messages") or [])
    if entry.sample is None:
        # Without a sample, what was asked is all there is.
        messages = read_messages(entry.prompt)
    for message in messages:
        _show_message(message, console)
    if entry.label is not None:
        _print(console, "\nlabel", "bold")
        _print(console, _indented(entry.label))
    for name, values in (("metadata", entry.metadata), ("metrics", _metrics(entry))):
        if values:
            _print(console, f"\n{name}", "bold")
            _print(console, _indented(json.dumps(values, ensure_ascii=False, indent=2)))
    if files := list(_files(folder)):
        _print(console, "\nfiles", "bold")
        _print(console, _indented("\n".join(files)))


def _head(outcome: Outcome) -> Iterator[tuple[str, str]]:
    model = f", {outcome.model}" if outcome.model else ""
    yield (
        f"rollout {outcome.rollout_id}: row {outcome.row}, attempt {outcome.attempt}{model}",
        "bold",
    )
    good = outcome.status is OutcomeStatus.SUCCESS
    reward = "" if outcome.reward is None else f", reward {outcome.reward:g}"
    verdict = {True: ", passed", False: ", not passed", None: ""}[outcome.passed]
    yield f"{outcome.status}{reward}{verdict}", "green" if good else "red"
    if outcome.err_message:
        kind = ", ".join(filter(None, (outcome.err_category, outcome.origin)))
        yield f"{kind}: {outcome.err_message}", "red"
    phases = ("queued", "workflow", "grading")
    times = [(phase, getattr(outcome, f"{phase}_sec")) for phase in phases]
    if told := [f"{phase} {seconds:.2f} s" for phase, seconds in times if seconds is not None]:
        yield ", ".join(told), "dim"


def _show_message(message: Message, console: Console) -> None:
    colour = _COLOURS.get(message.role, "magenta")
    of = f" {message.call_id}" if message.call_id else ""
    _print(console, f"\n{message.role}{of}{' (error)' * message.failed}", f"bold {colour}")
    if message.reasoning:
        _print(console, _indented(message.reasoning), "dim italic")
    if message.text:
        _print(console, _indented(message.text))
    for call in message.calls:
        of = f" {call.id}" if call.id else ""
        _print(console, f"  -> {call.name}{of} {call.arguments}", colour)
    if message.usage:
        _print(console, f"  {json.dumps(message.usage)}", "dim")


def _metrics(entry: Entry) -> object:
    return (entry.sample or {}).get("metrics")


def _files(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            yield str(path)


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.split("\n"))


def _print(console: Console, text: str, style: str | None = None) -> None:
    shown = printable(text)
    console.print(shown, style=style, markup=False, highlight=False, emoji=False, soft_wrap=True)
