"""A run as one page of HTML: it needs no other file, and everything foreign in it is escaped."""

import json
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from string import Template

from osmosis_ai.rollout.eval._errors import EvalError
from osmosis_ai.rollout.eval._files import replace_file
from osmosis_ai.rollout.eval._histogram import Bar, histogram
from osmosis_ai.rollout.eval._journal import Entry
from osmosis_ai.rollout.eval._messages import Message, read_messages
from osmosis_ai.rollout.eval._metrics import Group, Tally
from osmosis_ai.rollout.eval._stored import StoredRun

_WIDTH, _BAR_HEIGHT, _LABEL_WIDTH = 640, 22, 130
_SPACE = _WIDTH - _LABEL_WIDTH - 60

_PAGE = Template("""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>$title</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'">
<style>
:root { color-scheme: light dark; --line: #8884; --bar: #3b82c4; --good: #2a8f4f; --bad: #c0392b }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2rem }
table { border-collapse: collapse; width: 100% }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid var(--line) }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums }
svg { max-width: 100%; height: auto } svg text { font-size: 13px; fill: currentColor }
svg rect { fill: var(--bar) } svg line { stroke: currentColor; stroke-width: 1.5 }
details { border-bottom: 1px solid var(--line); padding: .3rem 0 } summary { cursor: pointer }
pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: .3rem 0 .8rem 1rem }
.role { font-weight: 600 } .quiet { opacity: .7 } .good { color: var(--good) }
.bad { color: var(--bad) }
</style></head><body>
<h1>$title</h1>
<p class="quiet">$dataset, made $created</p>
$summary
<h2>Rewards</h2>$rewards
$pass_at_k
<h2>Seconds per rollout</h2>$durations
<h2>Rollouts</h2>
<table><thead><tr><th>row</th><th>attempt</th><th>status</th><th class="number">reward</th>
<th class="number">turns</th><th class="number">seconds</th><th>what went wrong</th></tr></thead>
<tbody>
""")
_END = "</body></html>\n"


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
    tally = run.tally()
    group = tally.everything
    yield _PAGE.substitute(
        title=escape(f"Run {run.name}"),
        dataset=escape(str(run.manifest["dataset"])),
        created=escape(str(run.manifest["created_at"])),
        summary=_summary(tally),
        rewards=_bars(histogram(group.rewards)),
        pass_at_k=_pass_at_k(tally),
        durations=_bars(histogram(group.numbers["duration_sec"])),
    )
    for outcome in run.outcomes():
        link = f'<a href="#{escape(outcome.rollout_id)}">{outcome.row}</a>'
        yield _row(
            [link, str(outcome.attempt), _verdict(outcome.status, outcome.passed)],
            [
                _number(outcome.reward, "g"),
                _number(outcome.turns, "d"),
                _number(outcome.duration_sec, ".2f"),
            ],
            [escape(outcome.err_message or "")],
        )
    yield "</tbody></table>\n<h2>Transcripts</h2>\n"
    for entry in run.entries():
        yield _transcript(entry)
    yield _END


def _summary(tally: Tally) -> str:
    groups = tally.by_model or {"all attempts": tally.everything}
    head = "<tr><th>policy</th><th>passed of graded</th><th>95 % interval</th><th>failed</th></tr>"
    rows = "".join(
        _row([escape(name), *_headline(group)], [], []) for name, group in groups.items()
    )
    work = "".join(_row([escape(name), value], [], []) for name, value in _work(tally.everything))
    return f"<table>{head}{rows}</table><h2>Work</h2><table>{work}</table>"


def _headline(group: Group) -> list[str]:
    numbers = group.as_json()
    rate, ends = group.pass_rate, numbers["pass_rate_interval"]
    shown = f"{group.passed} of {group.graded}" + ("" if rate is None else f" ({rate:.1%})")
    interval = f"{ends[0]:.1%} to {ends[1]:.1%}" if ends else ""
    kinds = ", ".join(f"{count} {kind}" for kind, count in group.origins.most_common())
    return [shown, interval, escape(kinds)]


def _work(group: Group) -> Iterator[tuple[str, str]]:
    for name in ("turns", "tool_calls", "tool_errors", "prompt_tokens", "completion_tokens"):
        if values := group.numbers.get(name):
            yield name.replace("_", " "), f"{sum(values):,.0f}"
    for name in ("queued", "workflow", "grading"):
        if numbers := group.as_json()[f"{name}_sec"]:
            yield (
                f"{name}, seconds",
                f"median {numbers['p50']:.2f}, 95 % below {numbers['p95']:.2f}",
            )


def _bars(bars: Sequence[Bar]) -> str:
    if not bars:
        return '<p class="quiet">none</p>'
    highest = max(bar.count for bar in bars)
    shapes = [
        _bar(place, bar.label, bar.count / highest, str(bar.count))
        for place, bar in enumerate(bars)
    ]
    return _svg(shapes)


def _pass_at_k(tally: Tally) -> str:
    estimates, intervals = tally.pass_at_k, tally.pass_at_k_intervals
    if not estimates:
        return ""
    shapes: list[str] = []
    for place, (k, value) in enumerate(estimates.items()):
        low, high = (_LABEL_WIDTH + _SPACE * end for end in intervals[k] or (value, value))
        y = place * _BAR_HEIGHT + _BAR_HEIGHT / 2
        whisker = f'<line x1="{low:.1f}" x2="{high:.1f}" y1="{y}" y2="{y}"/>'
        shapes.append(_bar(place, f"pass@{k}", value, f"{value:.3f}", at_end=True) + whisker)
    return f"<h2>Chance that one of k attempts passes</h2>{_svg(shapes)}"


def _bar(place: int, label: str, share: float, value: str, *, at_end: bool = False) -> str:
    """Return one bar; its value stands behind it, or at the end of the room for bars."""
    y, width = place * _BAR_HEIGHT, _SPACE * share
    value_x = _LABEL_WIDTH + 6 + (_SPACE if at_end else width)
    return (
        f'<text x="{_LABEL_WIDTH - 8}" y="{y + 15}" text-anchor="end">{escape(label)}</text>'
        f'<rect x="{_LABEL_WIDTH}" y="{y + 3}" width="{width:.1f}" height="{_BAR_HEIGHT - 6}"/>'
        f'<text x="{value_x:.1f}" y="{y + 15}">{escape(value)}</text>'
    )


def _svg(bars: Sequence[str]) -> str:
    height = len(bars) * _BAR_HEIGHT
    return (
        f'<svg role="img" width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}">'
        f"{''.join(bars)}</svg>"
    )


def _transcript(entry: Entry) -> str:
    outcome = entry.outcome
    sample = entry.sample or {"messages": entry.prompt}
    body = "".join(_message(message) for message in read_messages(sample["messages"]))
    label = "" if entry.label is None else f'<div class="role">label</div>{_pre(entry.label)}'
    meta = "" if not entry.metadata else _pre(json.dumps(entry.metadata, ensure_ascii=False))
    return (
        f"<details><summary>row {outcome.row}, attempt "
        f"{outcome.attempt}: {_verdict(outcome.status, outcome.passed)} "
        f'<span class="quiet">{escape(outcome.rollout_id)}</span></summary>'
        # A link to what is inside opens it.
        f'<div id="{escape(outcome.rollout_id)}">{body}{label}{meta}</div></details>\n'
    )


def _message(message: Message) -> str:
    role = f'<div class="role">{escape(message.role)}{" (error)" * message.failed}</div>'
    thought = f'<div class="quiet">{_pre(message.reasoning)}</div>' if message.reasoning else ""
    calls = "".join(_pre(f"-> {call.name} {call.arguments}") for call in message.calls)
    return f"{role}{thought}{_pre(message.text)}{calls}"


def _pre(text: str) -> str:
    return f"<pre>{escape(text)}</pre>" if text else ""


def _verdict(status: str, passed: bool | None) -> str:
    if passed is None:
        return f'<span class="bad">{escape(status)}</span>' if status != "success" else "not graded"
    return '<span class="good">passed</span>' if passed else "not passed"


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def _row(cells: Sequence[str], numbers: Sequence[str] = (), rest: Sequence[str] = ()) -> str:
    plain = "".join(f"<td>{cell}</td>" for cell in cells)
    right = "".join(f'<td class="number">{number}</td>' for number in numbers)
    return f"<tr>{plain}{right}{''.join(f'<td>{cell}</td>' for cell in rest)}</tr>\n"
