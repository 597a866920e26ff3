"""What was said in a rollout so far, to see which prompts go on from it and which rewrite it."""

import hashlib
from collections.abc import Sequence
from itertools import accumulate

from osmosis_ai.rollout.eval._gateway._turns import Turn

type RoleTurn = tuple[str, Turn]
"""The role and the digest of a message."""


class History:
    """The conversations of a rollout: every prompt, and what answered it.

    It holds one digest for each message in its place, however many prompts repeat it, and the
    time when it was first known: a prompt that was sent before an answer came cannot know it.
    """

    def __init__(self) -> None:
        self._starts: dict[bytes, float] = {}
        self._prompts: dict[bytes, float] = {}
        self._answered: dict[bytes, float] = {}
        self._answers: dict[Turn, float] = {}

    def rewritten(self, prompt: Sequence[RoleTurn], sent_at: float) -> int | None:
        """Return the place where a prompt departs from what was said before, or None.

        A prompt may go on from any earlier answer, ask the same again, or begin anew. It rewrites
        when it holds an answer of the policy behind a message that was another one then, or
        another answer where the policy had given its own.

        Args:
            prompt: Its messages.
            sent_at: When it was sent.
        """

        def known(table: dict[bytes, float], digest: bytes) -> bool:
            return table.get(digest, sent_at) < sent_at

        starts = _starts(prompt)
        place = next(
            (i for i, start in enumerate(starts) if not known(self._starts, start)), len(prompt)
        )
        if place == len(prompt):
            return None
        if any(known(self._answers, turn) for _, turn in prompt[place:]):
            return place
        before = starts[place - 1] if place else b""
        answered_else = known(self._prompts, before) and not known(self._answered, before)
        return place if answered_else and prompt[place][0] == "assistant" else None

    def add(self, prompt: Sequence[RoleTurn], answers: Sequence[Turn], ended_at: float) -> None:
        """Add a prompt and its answers, known from `ended_at` on."""
        if not answers:
            return
        starts = _starts(prompt)
        before = starts[-1] if starts else b""
        self._prompts.setdefault(before, ended_at)
        for start in starts:
            self._starts.setdefault(start, ended_at)
        for answer in answers:
            self._answers.setdefault(answer, ended_at)
            whole = _link(before, ("assistant", answer))
            self._starts.setdefault(whole, ended_at)
            self._answered.setdefault(whole, ended_at)


def _starts(prompt: Sequence[RoleTurn]) -> list[bytes]:
    """Return a digest of each of a prompt's beginnings: its first message, its first two..."""
    return list(accumulate(prompt, _link, initial=b""))[1:]


def _link(before: bytes, turn: RoleTurn) -> bytes:
    return hashlib.blake2b(before + turn[1], digest_size=16).digest()
