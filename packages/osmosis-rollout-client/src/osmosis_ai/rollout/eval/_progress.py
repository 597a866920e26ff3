"""What a person sees while a run goes on."""

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from textwrap import shorten
from types import TracebackType
from typing import Self, override

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from osmosis_ai.rollout.eval._console import say
from osmosis_ai.rollout.eval._course import Listener
from osmosis_ai.rollout.eval._outcomes import Outcome, OutcomeStatus
from osmosis_ai.rollout.eval._running import Stop

# Failures often come in crowds; the journal has them all.
_MAX_FAILURES_SHOWN = 10
_MAX_REASON_CHARS = 300


class ProgressDisplay(Listener):
    """Shows how far a run is: a bar on a terminal, elsewhere a line for each tenth of it.

    Args:
        console: Where to show it.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._total = self._done = self._graded = self._passed = self._shown = self._tokens = 0
        self._kinds: Counter[str] = Counter()
        self._began = time.monotonic()
        self._bar = _Bar(console)
        # FORCE_COLOR makes consoles of pipes, but nothing can move in them.
        self._has_bar = console.is_interactive and console.file.isatty()

    def __enter__(self) -> Self:
        if self._has_bar:
            self._bar.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._has_bar:
            self._bar.stop()

    @override
    def on_start(self, total: int, earlier: Sequence[Outcome]) -> None:
        """Show how much there is to do."""
        self._total = total
        self._bar.update(self._bar.task, total=total)
        for outcome in earlier:
            self._count(outcome)
        if earlier:
            say(self._console, f"resumed: {len(earlier)} of {total} rollouts have ended before")

    @override
    def on_outcome(self, outcome: Outcome) -> None:
        """Count an outcome."""
        self._count(outcome)
        self._tokens += outcome.completion_tokens or 0
        if outcome.status in {OutcomeStatus.FAILURE, OutcomeStatus.CANCELLED}:
            self._show_failure(outcome)
        if not self._has_bar and self._reached_a_tenth():
            say(self._console, f"{self._done}/{self._total} done, {self._bar.summary}")

    @override
    def on_stop(self, stop: Stop) -> None:
        """Say that the end is near, and how to have it at once."""
        if stop.status is OutcomeStatus.CANCELLED:
            what = "running rollouts are cancelled; interrupt again to leave at once"
            say(self._console, f"{stop.message}: {what}")

    def _count(self, outcome: Outcome) -> None:
        self._done += 1
        self._graded += outcome.passed is not None
        self._passed += bool(outcome.passed)
        if outcome.status is not OutcomeStatus.SUCCESS:
            self._kinds[outcome.err_category or outcome.status] += 1
        self._bar.update(self._bar.task, completed=self._done)
        self._bar.summary = self._summary()

    def _summary(self) -> str:
        rate = f" ({100 * self._passed / self._graded:.1f} %)" if self._graded else ""
        parts = [f"{self._passed} of {self._graded} passed{rate}"]
        parts += [f"{count} {kind}" for kind, count in self._kinds.most_common()]
        if self._tokens:
            seconds = max(time.monotonic() - self._began, 1e-3)
            parts.append(f"{self._tokens / seconds:,.0f} tokens/s")
        return ", ".join(parts)

    def _reached_a_tenth(self) -> bool:
        return self._done * 10 // self._total > (self._done - 1) * 10 // self._total

    def _show_failure(self, outcome: Outcome) -> None:
        self._shown += 1
        if self._shown > _MAX_FAILURES_SHOWN:
            return
        kind = ", ".join(filter(None, (outcome.status, outcome.err_category)))
        reason = shorten(outcome.err_message or "no reason given", _MAX_REASON_CHARS)
        place = f"row {outcome.row} attempt {outcome.attempt}"
        say(self._console, f"{place}: {kind}: {reason}", by_word=True)
        if self._shown == _MAX_FAILURES_SHOWN:
            say(self._console, "further ones are in the run's report only", by_word=True)


class _Bar(Progress):
    """A bar, and a line of numbers below it."""

    def __init__(self, console: Console) -> None:
        self.summary = "starting"
        super().__init__(
            TextColumn("rollouts"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=console,
        )
        self.task = self.add_task("", total=None)

    @override
    def get_renderables(self) -> Iterable[RenderableType]:
        yield self.make_tasks_table(self.tasks)
        yield Text(self.summary, no_wrap=True, overflow="ellipsis")
