"""What a person sees while a run goes on, and at its end."""

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from osmosis_ai.rollout.eval._evaluate import RunReport
from osmosis_ai.rollout.eval._metrics import Group
from osmosis_ai.rollout.eval._outcomes import Outcome, OutcomeStatus

# Failures often come in crowds; `results.jsonl` has them all.
_MAX_FAILURES_SHOWN = 10
_PLAIN_STEPS = 10


class ProgressDisplay:
    """Shows how far a run is: a bar on a terminal, elsewhere a line for each tenth of it.

    Args:
        console: Where to show it.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._done = self._passed = self._failures = 0
        self._task: TaskID | None = None
        self._bar = Progress(
            TextColumn("rollouts"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[passed]} passed, {task.fields[failures]} not ended well"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def add(self, outcome: Outcome, total: int) -> None:
        """Take note of an outcome, one of `total`."""
        self._done += 1
        self._passed += bool(outcome.passed)
        if outcome.status is not OutcomeStatus.SUCCESS:
            self._failures += 1
            self._show_failure(outcome)
        if self._console.is_terminal:
            self._move_bar(total)
        elif self._done * _PLAIN_STEPS // total > (self._done - 1) * _PLAIN_STEPS // total:
            self._say(
                f"{self._done}/{total} done, {self._passed} passed, {self._failures} not ended well"
            )

    def _move_bar(self, total: int) -> None:
        passed, failures = self._passed, self._failures
        if self._task is None:
            self._task = self._bar.add_task("", total=total, passed=passed, failures=failures)
        self._bar.update(self._task, completed=self._done, passed=passed, failures=failures)

    def _show_failure(self, outcome: Outcome) -> None:
        if self._failures > _MAX_FAILURES_SHOWN:
            return
        what = (
            f"{outcome.status}, {outcome.err_category}" if outcome.err_category else outcome.status
        )
        self._say(f"row {outcome.row} attempt {outcome.attempt}: {what}: {outcome.err_message}")
        if self._failures == _MAX_FAILURES_SHOWN:
            self._say("further ones are in results.jsonl only")

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


def show_report(report: RunReport, console: Console) -> None:
    """Show a run's numbers, and where everything lies."""
    groups = report.tally.by_model or {"all attempts": report.tally.everything}
    if console.is_terminal:
        console.print(_table(groups))
    else:
        for name, group in groups.items():
            _say(console, f"{name} {passed_of(group)}{_exceptions(group)}")
    if estimates := report.tally.pass_at_k:
        shown = ", ".join(f"pass@{k} {value:.3f}" for k, value in estimates.items())
        _say(console, shown)
    _say(console, f"results:      {report.files.results}")
    _say(console, f"metrics:      {report.files.metrics}")
    trajectories = (
        f"{report.rollouts}/<rollout_id>/trajectory.json"
        if report.rollouts
        else ("on the rollout server, in its artifact root")
    )
    _say(console, f"trajectories: {trajectories}")


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
    table = Table("policy", "passed of graded", "mean reward")
    others = [status for status in OutcomeStatus if status is not OutcomeStatus.SUCCESS]
    for column in (*others, "median seconds"):
        table.add_column(column, justify="right")
    for name, group in groups.items():
        numbers = group.as_json()
        reward, duration = numbers["reward"], numbers["duration_sec"]
        table.add_row(
            name,
            passed_of(group),
            f"{reward['mean']:.3f}" if reward else "-",
            *(str(group.statuses[status]) for status in others),
            f"{duration['p50']:.2f}" if duration else "-",
        )
    return table


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
