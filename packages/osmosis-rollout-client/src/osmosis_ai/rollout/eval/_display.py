"""What a person sees at the end of a run."""

from collections.abc import Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from osmosis_ai.rollout.eval._console import printable, say
from osmosis_ai.rollout.eval._course import RunReport
from osmosis_ai.rollout.eval._histogram import histogram
from osmosis_ai.rollout.eval._metrics import COUNTS, PHASES, Group, Tally
from osmosis_ai.rollout.eval._outcomes import OutcomeStatus

_BAR_CELLS = 40


def show_report(report: RunReport, console: Console) -> None:
    """Show a run's numbers, and where everything lies."""
    show_tally(report.tally, console)
    files = report.files
    say(console, f"run:          {files.path}")
    say(console, f"results:      {files.journal}")
    say(console, f"index:        {files.index}")
    say(console, f"metrics:      {files.metrics}")
    say(console, f"report:       {files.page}")
    if report.rollouts is None:
        say(console, "trajectories: on the rollout server, in its artifact root")
    elif any(report.rollouts.glob("*/trajectory.json")):
        say(console, f"trajectories: {report.rollouts}/<rollout_id>/trajectory.json")
    say(console, f"one rollout:  osmosis-rollout show ROW.ATTEMPT --run {files.path}")


def show_tally(tally: Tally, console: Console) -> None:
    """Show numbers: tables and bars on a terminal, elsewhere a line for each."""
    groups = tally.by_model or {"all attempts": tally.everything}
    if console.is_terminal:
        console.print(_table(groups))
        _show_rewards(tally.everything.rewards, console)
    else:
        for name, group in groups.items():
            say(console, f"{name} {passed_of(group)}{_exceptions(group)}")
    if origins := tally.everything.origins:
        shown = [f"{count} {origin}" for origin, count in origins.most_common()]
        say(console, f"failures by origin: {', '.join(shown)}", by_word=True)
    if findings := tally.everything.findings:
        shown = [f"{count} {kind}" for kind, count in findings.most_common()]
        say(console, f"rollouts with findings: {', '.join(shown)}", by_word=True)
    numbers = tally.everything.as_json()
    for line in filter(None, (_pass_at_k(tally), _work(numbers), _seconds(numbers))):
        say(console, line, by_word=True)


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


def _pass_at_k(tally: Tally) -> str:
    """Return the estimates for 1, 2, 4 and so on, and for all attempts; the others are on file."""
    estimates, intervals = tally.pass_at_k, tally.pass_at_k_intervals
    shown = [k for k in estimates if k.bit_count() == 1 or k == max(estimates)]
    return ", ".join(f"pass@{k} {estimates[k]:.3f} {_interval(intervals[k])}" for k in shown)


def _interval(ends: tuple[float, float] | None) -> str:
    return f"[{ends[0]:.3f}, {ends[1]:.3f}]" if ends else ""


def _work(numbers: dict[str, Any]) -> str:
    told = {name: numbers[name]["total"] for name in COUNTS if numbers[name]}
    return ", ".join(f"{name.replace('_', ' ')} {total:,.0f}" for name, total in told.items())


def _seconds(numbers: dict[str, Any]) -> str:
    told = {name.removesuffix("_sec"): numbers[name] for name in PHASES if numbers[name]}
    shown = ", ".join(f"{name} {seconds['p50']:.2f}" for name, seconds in told.items())
    return f"median seconds: {shown}" if shown else ""


def _show_rewards(rewards: Sequence[float], console: Console) -> None:
    bars = histogram(rewards)
    highest = max((bar.count for bar in bars), default=0)
    if len(bars) < 2:
        return
    width = max(len(bar.label) for bar in bars)
    cells = max(1, min(_BAR_CELLS, console.width - width - len(f"    {highest} ")))
    say(console, "rewards")
    for bar in bars:
        blocks = "\u2588" * max(round(cells * bar.count / highest), bar.count > 0)
        say(console, f"  {bar.label:>{width}}  {blocks} {bar.count}")
    say(console, "")


def _table(groups: dict[str, Group]) -> Table:
    """Return a row per group, with the pass rate's interval, mean reward and median seconds."""
    # Columns for what hardly happens would cost the width that 80 characters do not have.
    rare = [
        status
        for status in (OutcomeStatus.CANCELLED, OutcomeStatus.SKIPPED)
        if any(group.statuses[status] for group in groups.values())
    ]
    table = Table(box=SIMPLE_HEAD)
    for column in ("policy", "passed"):
        table.add_column(column, no_wrap=True)
    for column in ("95 %", "reward", "failed", *rare, "seconds"):
        table.add_column(column, justify="right")
    for name, group in groups.items():
        numbers = group.as_json()
        reward, duration, ends = (
            numbers[key] for key in ("reward", "duration_sec", "pass_rate_interval")
        )
        table.add_row(
            Text(printable(name)),
            passed_of(group),
            f"{100 * ends[0]:.0f}..{100 * ends[1]:.0f} %" if ends and ends[0] < ends[1] else "-",
            f"{reward['mean']:.3f}" if reward else "-",
            *(str(group.statuses[status]) for status in (OutcomeStatus.FAILURE, *rare)),
            f"{duration['p50']:.2f}" if duration else "-",
        )
    return table
