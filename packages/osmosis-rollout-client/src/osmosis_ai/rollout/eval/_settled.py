"""The outcomes of a run, exactly one for each attempt at each row."""

from collections.abc import Iterable

from osmosis_ai.rollout.eval._errors import RunError
from osmosis_ai.rollout.eval._outcomes import Outcome, OutcomeStatus, Place
from osmosis_ai.rollout.eval._running import ENDED_BY_THE_RUN


class Settled:
    """The outcomes that a run has so far.

    Args:
        earlier: The outcomes in its journal, the oldest first; of one place the latest counts.
        retry_failed: Whether those that are no success are to come again.
    """

    def __init__(self, earlier: Iterable[Outcome], *, retry_failed: bool) -> None:
        self._outcomes: dict[Place, Outcome] = {outcome.place: outcome for outcome in earlier}
        self._retried: dict[Place, Outcome] = {}
        if retry_failed:
            for place, outcome in list(self._outcomes.items()):
                if outcome.status is not OutcomeStatus.SUCCESS:
                    self._retried[place] = self._outcomes.pop(place)

    def __len__(self) -> int:
        return len(self._outcomes)

    def __contains__(self, place: Place) -> bool:
        return place in self._outcomes

    def add(self, outcome: Outcome) -> None:
        """Take in one more.

        Raises:
            RunError: there is one of this place already.
        """
        row, attempt = place = outcome.place
        if place in self._outcomes:
            msg = f"attempt {attempt} at row {row} ended twice: the counts cannot be trusted"
            raise RunError(msg)
        if outcome.origin == ENDED_BY_THE_RUN:
            # It was to come again and did not: what is known of it is still true.
            outcome = self._retried.get(place, outcome)
        self._outcomes[place] = outcome

    def in_order(self) -> list[Outcome]:
        """Return the outcomes by row and attempt."""
        return [self._outcomes[place] for place in sorted(self._outcomes)]
