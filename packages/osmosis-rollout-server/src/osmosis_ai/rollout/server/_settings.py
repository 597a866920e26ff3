"""The server's settings."""

import math
from dataclasses import dataclass

DEFAULT_BODY_LIMIT = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Settings:
    """Times and sizes of one app, checked.

    Attributes:
        result_wait_timeout_sec: How long one result poll waits for news, in seconds.
        polling_lease_timeout_sec: How long a rollout lives without a poll, in seconds.
        result_retention_sec: How long the result of an ended rollout can be read, in seconds.
        max_body_bytes: The largest request body.

    Raises:
        ValueError: a value makes no sense; the message names it.
    """

    result_wait_timeout_sec: float = 30.0
    polling_lease_timeout_sec: float = 120.0
    result_retention_sec: float = 900.0
    max_body_bytes: int = DEFAULT_BODY_LIMIT

    def __post_init__(self) -> None:
        _check("result_wait_timeout_sec", self.result_wait_timeout_sec, zero=True)
        _check("polling_lease_timeout_sec", self.polling_lease_timeout_sec, zero=False)
        _check("result_retention_sec", self.result_retention_sec, zero=True)
        _check("max_body_bytes", self.max_body_bytes, zero=False)


def _check(name: str, value: float, *, zero: bool) -> None:
    if not math.isfinite(value) or value < 0 or (value == 0 and not zero):
        msg = f"{name} must be a finite number {'of at least' if zero else 'above'} 0, not {value}"
        raise ValueError(msg)
