"""What a person sees while a run goes on, and at its end."""

from textwrap import shorten
from types import TracebackType
from typing import Self

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from osmosis_ai.rollout.eval._evaluate import RunReport
from osmosis_ai.rollout.eval._metrics import Group
from osmosis_ai.rollout.eval._outcomes import Outcome, OutcomeStatus

# Failures often come in crowds; `results.jsonl` has them all.
_MAX_FAILURES_SHOWN = 10
_MAX_REASON_CHARS = 300


class ProgressDisplay:
    """Shows how far a run is: a bar on a terminal, elsewhere a line for each tenth of it.

    Args:
        console: Where to show it.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._done = self._passed = self._failures = self._shown = 0
        self._bar = Progress(
            TextColumn("rollouts"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[summary]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
        )
        self._task = self._bar.add_task("", total=None, summary="starting")

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._bar.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._console.is_terminal:
            self._bar.stop()

    def add(self, outcome: Outcome, total: int) -> None:
        """Take note of an outcome, one of `total`."""
        self._done += 1
        self._passed += bool(outcome.passed)
        if outcome.status is not OutcomeStatus.SUCCESS:
            self._failures += 1
        if outcome.status in {OutcomeStatus.FAILURE, OutcomeStatus.CANCELLED}:
            self._show_failure(outcome)
        summary = f"{self._passed} passed, {self._failures} without a result"
        self._bar.update(self._task, total=total, completed=self._done, summary=summary)
        if not self._console.is_terminal and self._reached_a_tenth(total):
            say(self._console, f"{self._done}/{total} done, {summary}")

    def _reached_a_tenth(self, total: int) -> bool:
        return self._done * 10 // total > (self._done - 1) * 10 // total

    def _show_failure(self, outcome: Outcome) -> None:
        self._shown += 1
        if self._shown > _MAX_FAILURES_SHOWN:
            return
        kind = ", ".join(filter(None, (outcome.status, outcome.err_category)))
        reason = shorten(outcome.err_message or "no reason given", _MAX_REASON_CHARS)
        say(self._console, f"row {outcome.row} attempt {outcome.attempt}: {kind}: {reason}")
        if self._shown == _MAX_FAILURES_SHOWN:
            say(self._console, "further ones are in results.jsonl only")


def say(console: Console, text: str) -> None:
    """Print text as it is, without what would steer a terminal: some of it is foreign."""
    shown = "".join(char if char.isprintable() or char == "\n" else "\ufffd" for char in text)
    console.print(shown, markup=False, highlight=False, emoji=False, soft_wrap=True)


def show_report(report: RunReport, console: Console) -> None:
    """Show a run's numbers, and where everything lies."""
    groups = report.tally.by_model or {"all attempts": report.tally.everything}
    if console.is_terminal:
        console.print(_table(groups))
    else:
        for name, group in groups.items():
            say(console, f"{name} {passed_of(group)}{_exceptions(group)}")
    if estimates := report.tally.pass_at_k:
        shown = ", ".join(f"pass@{k} {value:.3f}" for k, value in estimates.items())
        say(console, shown)
    say(console, f"results:      {report.files.results}")
    say(console, f"metrics:      {report.files.metrics}")
    trajectories = (
        f"{report.rollouts}/<rollout_id>/trajectory.json"
        if report.rollouts
        else ("on the rollout server, in its artifact root")
    )
    say(console, f"trajectories: {trajectories}")


def passed_of(group: Group) -> str:
    """Return the headline: `110/200 (55.0 %)`, passed of graded."""
    rate = "-" if group.pass_rate is None else f"{100 * group.pass_rate:.1f} %"
    return f"{group.passed}/{group.graded} ({rate})"


def _exceptions(group: Group) -> str:
    counts = [
        f", {group.statuses[status]} {status}"
        for status in OutcomeStatus
        if status is not OutcomeStatus.SUCCESS and group.statuses[status]
    ]
    return "".join(counts)


def _table(groups: dict[str, Group]) -> Table:
    """Return a row per group; reward is the mean, seconds are the median."""
    # Columns for what hardly happens would cost the width that 80 characters do not have.
    rare = [
        status
        for status in (OutcomeStatus.CANCELLED, OutcomeStatus.SKIPPED)
        if any(group.statuses[status] for group in groups.values())
    ]
    table = Table(box=SIMPLE_HEAD)
    for column in ("policy", "passed"):
        table.add_column(column, no_wrap=True)
    for column in ("reward", "failed", *rare, "seconds"):
        table.add_column(column, justify="right")
    for name, group in groups.items():
        numbers = group.as_json()
        reward, duration = numbers["reward"], numbers["duration_sec"]
        table.add_row(
            Text(name),
            passed_of(group),
            f"{reward['mean']:.3f}" if reward else "-",
            *(str(group.statuses[status]) for status in (OutcomeStatus.FAILURE, *rare)),
            f"{duration['p50']:.2f}" if duration else "-",
        )
    return table
