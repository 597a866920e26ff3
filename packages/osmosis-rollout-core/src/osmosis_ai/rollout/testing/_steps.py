"""The steps that a reply is made of."""

import threading
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Comment:
    """An SSE comment line such as `: ping`, which keeps a connection busy and means nothing."""

    text: str = "ping"


@dataclass(frozen=True)
class Pause:
    """Send nothing for a while, in seconds."""

    seconds: float


@dataclass(frozen=True)
class Cut:
    """Break the connection off here, in the middle of the chunked body.

    Attributes:
        reset: Whether by a reset (RST) instead of an orderly close (FIN).
    """

    reset: bool = False


class Gate:
    """Holds every reply that reaches it until a test opens it; usable from any thread.

    The methods block: in an async test, call `wait` through `asyncio.to_thread`.
    """

    def __init__(self) -> None:
        self._opened: Future[None] = Future()
        self._arrivals = 0
        self._arrived = threading.Condition()

    @property
    def arrivals(self) -> int:
        """How many replies have reached the gate so far."""
        return self._arrivals

    def wait(self, arrivals: int = 1, *, timeout: float = 10.0) -> None:
        """Block until that many replies have reached the gate.

        Raises:
            TimeoutError: they have not within `timeout` seconds.
        """
        with self._arrived:
            if not self._arrived.wait_for(lambda: self._arrivals >= arrivals, timeout):
                msg = f"{self._arrivals} of {arrivals} replies reached the gate in {timeout} s"
                raise TimeoutError(msg)

    def open(self) -> None:
        """Let every reply pass, from now on."""
        if not self._opened.done():
            self._opened.set_result(None)

    def arrive(self) -> Future[None]:
        """Count a reply in and return what is done once the gate is open."""
        with self._arrived:
            self._arrivals += 1
            self._arrived.notify_all()
        return self._opened


type Step = dict[str, Any] | bytes | Comment | Pause | Gate | Cut
"""A dict is one `data:` event, bytes are sent as they are, the rest is what its class says."""
