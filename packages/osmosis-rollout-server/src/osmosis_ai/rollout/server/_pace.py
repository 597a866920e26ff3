"""The pace at which rollouts end, for telling when it makes sense to try again."""

import math
import time
from collections import deque

FALLBACK_SEC = 5
"""What is told as long as nothing is known."""

_LONGEST_SEC = 60
_ENDINGS = 32


class Pace:
    """Watches rollouts end while there is work; one that ends makes room for one."""

    def __init__(self) -> None:
        # Since the last time that there was nothing to do: time in which nobody waited is no pace.
        self._times: deque[float] = deque(maxlen=_ENDINGS)

    def work_began(self) -> None:
        """Start anew: there is work again."""
        self._times.clear()
        self._times.append(time.monotonic())

    def rollout_ended(self) -> None:
        """Count an ending."""
        self._times.append(time.monotonic())

    def retry_after(self) -> int:
        """Return how many seconds it takes until the next rollout ends, on average, 1 to 60."""
        endings = len(self._times) - 1
        if endings < 1:
            return FALLBACK_SEC
        # The time since the last ending counts: a line that stands still is no fast one.
        interval = (time.monotonic() - self._times[0]) / endings
        return max(1, min(_LONGEST_SEC, math.ceil(interval)))
