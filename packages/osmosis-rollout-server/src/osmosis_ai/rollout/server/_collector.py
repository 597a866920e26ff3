"""Python's collector of cyclic garbage, which is in a server's way more than it is of use."""

import gc
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

# How many more objects there must be before the collector looks at them; Python's own choice is
# 700 or 2,000, which is what some ten open polls hold.
_NEW_OBJECTS: Final = 50_000


@contextmanager
def patient_collector() -> Generator[None]:
    """Have the collector look for garbage less often while inside.

    Whatever thousands of rollouts hold is in use until it is freed without the collector. It looks
    at all of it nevertheless, again and again as it grows, and everything stands still meanwhile:
    half a second for 4,000 rollouts. A collector that is off, or more patient, is left as it is.
    """
    before = gc.get_threshold()
    if not 0 < before[0] < _NEW_OBJECTS:
        yield
        return
    gc.set_threshold(_NEW_OBJECTS, *before[1:])
    try:
        yield
    finally:
        if gc.get_threshold()[0] == _NEW_OBJECTS:
            gc.set_threshold(*before)
