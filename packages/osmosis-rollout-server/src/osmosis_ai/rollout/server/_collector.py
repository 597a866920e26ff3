"""Python's collector of cyclic garbage, which is in a server's way more than it is of use."""

import gc
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

# How many more objects there must be before the collector looks at them; Python's own choice is
# 700 or 2,000, which is what some ten open polls hold. Found by measuring: with this number a long
# look seldom falls into the moment in which 4,000 rollouts end, polled or called back.
_NEW_OBJECTS: Final = 35_000


class _Patience:
    """The collector is the process's: the first app inside changes it, the last one restores it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._before: tuple[int, int, int] | None = None

    def enter(self) -> None:
        with self._lock:
            self._inside += 1
            chosen = gc.get_threshold()
            if self._before is None and 0 < chosen[0] < _NEW_OBJECTS:
                self._before = chosen
                gc.set_threshold(_NEW_OBJECTS, *chosen[1:])

    def leave(self) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside or self._before is None:
                return
            if gc.get_threshold()[0] == _NEW_OBJECTS:
                gc.set_threshold(*self._before)
            self._before = None


_patience = _Patience()


@contextmanager
def patient_collector() -> Generator[None]:
    """Have the collector look for garbage less often while inside.

    Whatever thousands of rollouts hold is in use until it is freed without the collector. It looks
    at all of it nevertheless, again and again as it grows, and everything stands still meanwhile:
    half a second for 4,000 rollouts. A collector that is off, or more patient, is left as it is.
    """
    _patience.enter()
    try:
        yield
    finally:
        _patience.leave()
