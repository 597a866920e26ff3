"""The commands about runs that are there: compare, regrade, show, export and report."""

import asyncio
import json
import time
from pathlib import Path

from osmosis_ai.rollout.eval._compare import Comparison, Difference, compare
from osmosis_ai.rollout.eval._console import say, stderr, stdout
from osmosis_ai.rollout.eval._display import show_report
from osmosis_ai.rollout.eval._errors import EvalError
from osmosis_ai.rollout.eval._export import export_samples
from osmosis_ai.rollout.eval._progress import ProgressDisplay
from osmosis_ai.rollout.eval._regrade import RegradeOptions, regrade
from osmosis_ai.rollout.eval._report import write_page
from osmosis_ai.rollout.eval._stored import RUNS, StoredRun
from osmosis_ai.rollout.eval._transcript import show_rollout

_MAX_ROWS_SHOWN = 20


def compare_runs(a: str, b: str, *, as_json: bool) -> None:
    """Show how two runs compare.

    Raises:
        EvalError: one is no run, or they have nothing in common.
    """
    before, after = StoredRun.find(a), StoredRun.find(b)
    comparison = compare(before.outcomes(), after.outcomes())
    if as_json:
        print(json.dumps(comparison.as_json()))
    else:
        _show(comparison, before.name, after.name)


def regrade_run(
    run: str,
    *,
    entrypoint: str | None,
    python: Path | None,
    name: str | None,
    max_in_flight: int | None,
    pass_threshold: float | None,
    grader_timeout_sec: float | None,
    as_json: bool,
    plain: bool,
) -> bool:
    """Grade a run anew, show old against new, and tell whether all samples were graded.

    Raises:
        EvalError: bad input, or a run that cannot be trusted.
    """
    old = StoredRun.find(run)
    name = name or f"{old.name}-regraded-{time.strftime('%Y%m%d-%H%M%S')}"
    options = RegradeOptions(
        output=RUNS / name,
        entrypoint=entrypoint,
        python=python,
        max_in_flight=max_in_flight,
        pass_threshold=pass_threshold,
        grader_timeout_sec=grader_timeout_sec,
    )
    with ProgressDisplay(stderr(plain=plain)) as progress:
        report = asyncio.run(regrade(old, options, progress))
    new = StoredRun.find(str(options.output))
    write_page(new)
    if as_json:
        document = report.as_json() | {"compared": _compared(old, new)}
        print(json.dumps(document))
        return report.succeeded
    show_report(report, stdout(plain=plain))
    if report.tally.everything.graded:
        _show(compare(old.outcomes(), new.outcomes()), old.name, new.name)
    return report.succeeded


def _compared(old: StoredRun, new: StoredRun) -> object:
    outcomes = new.outcomes()
    graded = any(outcome.reward is not None for outcome in outcomes)
    return compare(old.outcomes(), outcomes).as_json() if graded else None


def _show(comparison: Comparison, a: str, b: str) -> None:
    console = stdout()
    rows = len(comparison.better) + len(comparison.worse) + comparison.same
    say(console, f"{rows} rows are graded in both runs, {comparison.unpaired} in one alone")
    say(console, f"A: {a}")
    say(console, f"B: {b}")
    say(console, f"B is better on {_rows(comparison.better)}")
    say(console, f"B is worse on {_rows(comparison.worse)}")
    say(console, f"B is the same on {comparison.same}")
    say(console, _words("pass rate", comparison.pass_rate))
    say(console, _words("mean reward", comparison.reward))


def _rows(rows: list[int]) -> str:
    shown = ", ".join(map(str, rows[:_MAX_ROWS_SHOWN]))
    more = ", ..." if len(rows) > _MAX_ROWS_SHOWN else ""
    return f"{len(rows)}: rows {shown}{more}" if rows else "0"


def _words(name: str, difference: Difference) -> str:
    low, high = difference.interval
    verdict = "more than noise" if difference.is_more_than_noise else "no more than noise"
    change = difference.b - difference.a
    return (
        f"{name}: {difference.a:.3f} -> {difference.b:.3f}, {change:+.3f} "
        f"[{low:+.3f}, {high:+.3f}], p = {difference.chance:.3g}: {verdict}"
    )


def show_one(rollout: str, run: str | None) -> None:
    """Print the transcript of a rollout, by its id, or by its row and attempt such as 7.2.

    Raises:
        EvalError: there is no such rollout, or no such run.
    """
    runs = [StoredRun.find(run)] if run else StoredRun.named()
    for found in runs:
        if entry := found.find_entry(rollout):
            show_rollout(entry, found.files.rollouts / entry.outcome.rollout_id, stdout())
            return
    where = f"run {run}" if run else f"the runs in {RUNS}; name one with --run"
    msg = f"there is no rollout {rollout} in {where}"
    raise EvalError(msg)


def export_run(run: str, path: Path) -> None:
    """Write a run's samples to a file.

    Raises:
        EvalError: it cannot be done.
    """
    count = export_samples(StoredRun.find(run), path)
    say(stdout(), f"{path}: {count} samples")


def write_report(run: str) -> None:
    """Write a run's page of HTML into its directory.

    Raises:
        EvalError: there is no such run, or it cannot be written.
    """
    say(stdout(), str(write_page(StoredRun.find(run))))
