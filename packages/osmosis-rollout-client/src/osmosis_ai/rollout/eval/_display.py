"""What a person sees at the end of a run."""

from collections.abc import Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from osmosis_ai.rollout.eval._console import say
from osmosis_ai.rollout.eval._course import RunReport
from osmosis_ai.rollout.eval._histogram import histogram
from osmosis_ai.rollout.eval._metrics import Group, Tally
from osmosis_ai.rollout.eval._outcomes import OutcomeStatus

_BAR_CELLS = 40


def show_report(report: RunReport, console: Console) -> None:
    """Show a run's numbers, and where everything lies."""
    show_tally(report.tally, console)
    say(console, f"run:          {report.files.path}")
    say(console, f"results:      {report.files.journal}")
    say(console, f"index:        {report.files.index}")
    say(console, f"metrics:      {report.files.metrics}")
    say(console, f"report:       {report.files.page}")
    trajectories = (
        f"{report.rollouts}/<rollout_id>/trajectory.json"
        if report.rollouts
        else "on the rollout server, in its artifact root"
    )
    say(console, f"trajectories: {trajectories}")


def show_tally(tally: Tally, console: Console) -> None:
    """Show numbers: tables and bars on a terminal, elsewhere a line for each."""
    groups = tally.by_model or {"all attempts": tally.everything}
    if console.is_terminal:
        console.print(_table(groups))
        _show_rewards(tally.everything.rewards, console)
    else:
        for name, group in groups.items():
            say(console, f"{name} {passed_of(group)}{_exceptions(group)}")
    if estimates := tally.pass_at_k:
        ends = tally.pass_at_k_intervals
        shown = [f"pass@{k} {value:.3f} {_interval(ends[k])}" for k, value in estimates.items()]
        say(console, ", ".join(shown))
    if origins := tally.everything.origins:
        shown = [f"{count} {origin}" for origin, count in origins.most_common()]
        say(console, f"failures by origin: {', '.join(shown)}")
    if work := _work(tally.everything.as_json()):
        say(console, work)


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


def _interval(ends: tuple[float, float] | None) -> str:
    return f"[{ends[0]:.3f}, {ends[1]:.3f}]" if ends else ""


def _work(numbers: dict[str, Any]) -> str:
    names = ("turns", "tool_calls", "tool_errors", "prompt_tokens", "completion_tokens")
    told = {name: numbers[name] for name in names if numbers[name]}
    parts = [f"{value['total']:,.0f} {name.replace('_', ' ')}" for name, value in told.items()]
    return ", ".join(parts)


def _show_rewards(rewards: Sequence[float], console: Console) -> None:
    bars = histogram(rewards)
    highest = max((bar.count for bar in bars), default=0)
    if len(bars) < 2:
        return
    say(console, "rewards")
    for bar in bars:
        blocks = "\u2588" * max(round(_BAR_CELLS * bar.count / highest), bar.count > 0)
        say(console, f"{bar.label:>15}  {blocks} {bar.count}")
    say(console, "")


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
