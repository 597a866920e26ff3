"""A run as one page of HTML: it needs no other file, and everything foreign in it is escaped."""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from string import Template
from typing import Any

from osmosis_ai.rollout.eval._charts import bar_chart, share_chart
from osmosis_ai.rollout.eval._errors import EvalError
from osmosis_ai.rollout.eval._files import replace_file
from osmosis_ai.rollout.eval._histogram import histogram
from osmosis_ai.rollout.eval._metrics import COUNTS, PHASES, Group, Tally
from osmosis_ai.rollout.eval._outcomes import Outcome, OutcomeStatus
from osmosis_ai.rollout.eval._page_transcript import coloured, reference, text, transcript
from osmosis_ai.rollout.eval._stored import StoredRun

# More than that, and browsers take their time.
_TRANSCRIPTS_CHARS = 50_000_000

_PAGE = Template("""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>$title</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'">
<style>
:root { color-scheme: light dark; --line: #8884; --bar: #3b82c4; --good: #2a8f4f; --bad: #c0392b }
@media (prefers-color-scheme: dark) { :root { --good: #5cc98a; --bad: #ff8a7a } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2rem }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { text-align: left; padding: .3rem .8rem; border-bottom: 1px solid var(--line) }
th, td { vertical-align: top } td:first-child { white-space: nowrap }
td:last-child { overflow-wrap: anywhere }
td.number, th.number { text-align: right; white-space: nowrap }
svg { max-width: 100%; height: auto } svg text { font-size: 13px; fill: currentColor }
svg rect { fill: var(--bar) } svg line { stroke: currentColor; stroke-width: 1.5 }
details { border-bottom: 1px solid var(--line); padding: .3rem 0 } summary { cursor: pointer }
pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: .3rem 0 .8rem 1rem }
.role { font-weight: 600 } .quiet { opacity: .7 } .thought { font-style: italic; opacity: .7 }
.good { color: var(--good) } .bad { color: var(--bad) }
</style></head><body>
<h1>$title</h1>
<p class="quiet">$dataset, begun on $created</p>
<p>$counts</p>
$summary
<h2>Rewards</h2>
$rewards
$pass_at_k
<h2>Numbers</h2>
$numbers
<h2>Seconds per rollout</h2>
$durations
<h2>Rollouts</h2>
<table><thead><tr><th class="number">row</th><th class="number">attempt</th>$model<th>outcome</th>
<th class="number">reward</th><th class="number">turns</th><th class="number">seconds</th>
<th>what went wrong</th></tr></thead><tbody>
""")


def write_page(run: StoredRun) -> Path:
    """Write a run's page into its directory, and return where it is.

    Raises:
        EvalError: the journal cannot be read, or the page cannot be written.
    """
    path = run.files.page
    try:
        replace_file(path, _lines(run))
    except OSError as error:
        msg = f"{path}: cannot be written: {error.strerror or error}"
        raise EvalError(msg) from None
    return path


def _lines(run: StoredRun) -> Iterator[str]:
    # In pieces, since a run may hold more than memory does.
    outcomes = run.outcomes()
    tally = Tally.of(outcomes, run.models)
    group = tally.everything
    yield _PAGE.substitute(
        title=text(f"Run {run.name}"),
        dataset=text(str(run.manifest["dataset"])),
        created=_day_and_time(str(run.manifest["created_at"])),
        counts=_counts(group, run.total),
        summary=_summary(tally),
        rewards=bar_chart(histogram(group.rewards)),
        pass_at_k=_pass_at_k(tally),
        numbers=_numbers(group),
        durations=bar_chart(histogram(group.numbers["duration_sec"])),
        model="<th>policy</th>" if tally.by_model else "",
    )
    for outcome in outcomes:
        yield _rollout(outcome, with_model=bool(tally.by_model))
    yield "</tbody></table>"
    yield "<h2>Transcripts</h2>"
    room = _TRANSCRIPTS_CHARS
    for entry in run.entries():
        shown = transcript(entry, run)
        room -= len(shown)
        yield shown if room > 0 else reference(entry, run)
    yield "</body></html>"


def _day_and_time(moment: str) -> str:
    return f"{datetime.fromisoformat(moment):%d %B %Y, %H:%M %Z}"


def _counts(group: Group, total: int) -> str:
    ended = group.statuses.total()
    kinds = [
        f"{group.statuses[status]:,} {status}" for status in OutcomeStatus if group.statuses[status]
    ]
    return f"{ended:,} of {total:,} rollouts have ended: {', '.join(kinds) or 'none yet'}"


def _summary(tally: Tally) -> str:
    groups = tally.by_model or {"all attempts": tally.everything}
    head = _row(
        ["policy", "passed", "graded", "pass rate", "95 % interval", "mean reward", "failures"],
        numbers={1, 2, 3, 4, 5},
        tag="th",
    )
    rows = [
        _row([text(name), *_headline(group)], numbers={1, 2, 3, 4, 5})
        for name, group in groups.items()
    ]
    return f"<table>{head}{''.join(rows)}</table>"


def _headline(group: Group) -> list[str]:
    numbers = group.as_json()
    rate, ends, reward = group.pass_rate, numbers["pass_rate_interval"], numbers["reward"]
    return [
        f"{group.passed:,}",
        f"{group.graded:,}",
        "" if rate is None else f"{100 * rate:.1f} %",
        f"{100 * ends[0]:.1f} to {100 * ends[1]:.1f} %" if ends and ends[0] < ends[1] else "",
        f"{reward['mean']:.3f}" if reward else "",
        text(", ".join(f"{count:,} {origin}" for origin, count in group.origins.most_common())),
    ]


def _numbers(group: Group) -> str:
    columns = ["total", "mean", "std", "min", "p05", "p50", "p95", "max"]
    places = set(range(1, len(columns) + 1))
    rows = [
        _row([name, *(_number(told.get(column), digits) for column in columns)], places)
        for name, told, digits in _told(group.as_json())
    ]
    head = _row(["", *columns], places, "th")
    return f"<table>{head}{''.join(rows)}</table>" if rows else '<p class="quiet">none</p>'


def _told(numbers: dict[str, Any]) -> Iterator[tuple[str, dict[str, float], int]]:
    """Yield what is known of what: its name, its distribution, and the digits that it needs."""
    for name, digits in (("reward", 3), *((name, 1) for name in COUNTS), *((p, 2) for p in PHASES)):
        if told := numbers[name]:
            what = name.removesuffix("_sec")
            yield what.replace("_", " ") + (", seconds" if what != name else ""), told, digits


def _number(value: float | None, digits: int) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if isinstance(value, int) else f"{value:,.{digits}f}"


def _pass_at_k(tally: Tally) -> str:
    ends = tally.pass_at_k_intervals
    shares = {f"pass@{k}": (share, ends[k]) for k, share in tally.pass_at_k.items()}
    return f"<h2>Chance that one of k attempts passes</h2>{share_chart(shares)}" if shares else ""


def _rollout(outcome: Outcome, *, with_model: bool) -> str:
    words = {True: "passed", False: "not passed", None: outcome.status}[outcome.passed]
    cells = [
        f'<a href="#{text(outcome.rollout_id)}">{outcome.row}</a>',
        str(outcome.attempt),
        *([text(outcome.model or "")] if with_model else []),
        coloured(outcome, words),
        "" if outcome.reward is None else f"{outcome.reward:g}",
        _number(outcome.turns, 0),
        _number(outcome.duration_sec, 2),
        text(outcome.err_message or ""),
    ]
    count = len(cells)
    return _row(cells, numbers={0, 1, count - 4, count - 3, count - 2})


def _row(cells: list[str], numbers: set[int], tag: str = "td") -> str:
    shown = [
        f"<{tag}{' class="number"' if place in numbers else ''}>{cell}</{tag}>"
        for place, cell in enumerate(cells)
    ]
    return f"<tr>{''.join(shown)}</tr>"
