"""What people are told of a rollout, on terminals and on pages alike."""

from collections.abc import Iterator
from pathlib import Path

from osmosis_ai.rollout.eval._messages import Message
from osmosis_ai.rollout.eval._metrics import COUNTS, PHASES
from osmosis_ai.rollout.eval._outcomes import Outcome


def verdict_of(outcome: Outcome) -> str:
    """Return how a rollout ended: its status, its reward, and whether that is enough."""
    reward = "" if outcome.reward is None else f", reward {outcome.reward:g}"
    passed = {True: ", passed", False: ", not passed", None: ""}[outcome.passed]
    return f"{outcome.status}{reward}{passed}"


def failure_of(outcome: Outcome) -> str:
    """Return what went wrong, after the kind and the origin of it; nothing, if nothing did."""
    if not outcome.err_message:
        return ""
    kind = ", ".join(filter(None, (outcome.err_category, outcome.origin)))
    return f"{kind}: {outcome.err_message}" if kind else outcome.err_message


def findings_of(outcome: Outcome) -> str:
    """Return what the policy gateway found, a line for each kind."""
    return "\n".join(f"{found['kind']}: {found['message']}" for found in outcome.findings)


def work_of(outcome: Outcome) -> str:
    """Return how long each phase took, and what is counted in the sample."""
    return ", ".join([*_seconds(outcome), *_counts(outcome)])


def usage_of(message: Message) -> str:
    """Return the tokens that the policy counted for a message."""
    counts = {name: count for name, count in message.usage.items() if isinstance(count, int)}
    return ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in counts.items())


def files_of(folder: Path) -> list[Path]:
    """Return the trajectory and the artifacts of a rollout, if it has a folder."""
    return [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink()]


def _seconds(outcome: Outcome) -> Iterator[str]:
    for name in PHASES:
        if (seconds := getattr(outcome, name)) is not None:
            yield f"{name.removesuffix('_sec')} {seconds:.2f} s"


def _counts(outcome: Outcome) -> Iterator[str]:
    for name in COUNTS:
        if (count := getattr(outcome, name)) is not None:
            yield f"{name.replace('_', ' ')} {count:,}"
