"""What a rollout's calls and its sample tell about each other."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from osmosis_ai.rollout.eval._gateway._calls import Call

SLOW_SEC: Final = 60.0
"""A call that takes longer than this is called slow."""

_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class Finding:
    """Something about a rollout that people want to know of.

    Attributes:
        kind: `bypassed`, `unused`, `rewritten`, `length`, `retried`, `slow` or `failed`.
        places: The assistant turns of the sample, for `bypassed`, else the calls; counted from 1.
        message: The finding in words.
    """

    kind: str
    places: list[int]
    message: str

    def as_json(self) -> dict[str, Any]:
        """Return it for a rollout's outcome."""
        return asdict(self)


def findings(calls: Sequence[Call], behind: Sequence[Call | None] | None) -> Iterator[Finding]:
    """Yield what there is to say.

    Args:
        calls: The rollout's calls in order.
        behind: The call behind each assistant turn of the sample, or None without a sample.
    """
    if behind is not None:
        yield from _about_sample(calls, behind)
    yield from _rewritten(calls)
    for kind, words, is_so in _KINDS:
        if places := [number for number, call in enumerate(calls, 1) if is_so(call)]:
            yield Finding(kind, places, f"{_listed('call', places)} {words}")
    yield from _failed(calls)


def _about_sample(calls: Sequence[Call], behind: Sequence[Call | None]) -> Iterator[Finding]:
    if places := [number for number, call in enumerate(behind, 1) if call is None]:
        words = "of the sample came from no call: the policy was bypassed"
        yield Finding("bypassed", places, f"{_listed('assistant turn', places)} {words}")
    used = {id(call) for call in behind}
    unused = [
        number for number, call in enumerate(calls, 1) if call.answers and id(call) not in used
    ]
    if unused:
        words = "answered, but not in the sample"
        yield Finding("unused", unused, f"{_listed('call', unused)} {words}")


def _rewritten(calls: Sequence[Call]) -> Iterator[Finding]:
    told = {
        number: f"call {number} is message {call.rewrote[0] + 1} ({call.rewrote[1]})"
        for number, call in enumerate(calls, 1)
        if call.rewrote is not None
    }
    if told:
        shown = "; ".join(list(told.values())[:_SHOWN])
        more = "; ..." if len(told) > _SHOWN else ""
        words = f"prompt rewrote earlier turns, the first that differs in {shown}{more}"
        yield Finding("rewritten", list(told), words)


def _failed(calls: Sequence[Call]) -> Iterator[Finding]:
    told = {number: call.problem for number, call in enumerate(calls, 1) if call.problem}
    if told:
        places = list(told)
        words = "failed, the first because" if len(told) > 1 else "failed:"
        yield Finding("failed", places, f"{_listed('call', places)} {words} {told[places[0]]}")


def _is_cut(call: Call) -> bool:
    return any(reply.finish_reason == "length" for reply in call.replies)


def _is_retried(call: Call) -> bool:
    return call.retries > 0 and bool(call.replies)


def _is_slow(call: Call) -> bool:
    return (call.duration_sec or 0.0) > SLOW_SEC


_KINDS: Final[Sequence[tuple[str, str, Callable[[Call], bool]]]] = (
    ("length", "cut by the length limit", _is_cut),
    ("retried", "answered only after another try", _is_retried),
    ("slow", f"longer than {SLOW_SEC:g} s", _is_slow),
)


def _listed(what: str, places: Sequence[int]) -> str:
    shown = ", ".join(map(str, places[:_SHOWN]))
    more = ", ..." if len(places) > _SHOWN else ""
    return f"{what}{'s' * (len(places) > 1)} {shown}{more}"
