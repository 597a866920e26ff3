"""Ctrl-C and SIGTERM: the first one ends a run in good order, the second one at once."""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SHOW_CURSOR = "\x1b[?25h"


@contextmanager
def interruptible(on_interrupt: Callable[[], None]) -> Generator[None]:
    """Have the first signal call `on_interrupt` while the context lasts; a second one leaves.

    Leaving is immediate: nothing is awaited and nothing cleaned up. What the run has acknowledged
    is in its journal, and a server that it started ends by itself. Signals reach only the main
    thread, so elsewhere nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    interrupted = False

    def on_signal(number: int) -> None:
        nonlocal interrupted
        if interrupted:
            _leave(number)
        interrupted = True
        on_interrupt()

    for number in _SIGNALS:
        loop.add_signal_handler(number, on_signal, number)
    try:
        yield
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)


def _leave(number: int) -> None:
    if sys.stderr.isatty():
        # A progress bar hides it.
        print(_SHOW_CURSOR, end="", file=sys.stderr, flush=True)
    os._exit(128 + number)
