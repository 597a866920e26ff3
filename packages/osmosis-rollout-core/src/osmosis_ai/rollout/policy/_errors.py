"""Failures of the policy's endpoint."""

from typing import override

# Answers that say "not now" or "I broke", as against "your request is wrong".
_ENDPOINT_FAILURES = frozenset({408, 429})


class PolicyError(Exception):
    """The policy's endpoint gave no whole answer.

    Attributes:
        status: The HTTP status, or None when the connection or the stream failed.
        message: The server's own message where it sent one, else what went wrong.
    """

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.status = status

    @property
    def is_endpoint_failure(self) -> bool:
        """Whether the endpoint failed, rather than refused what the agent asked for."""
        return self.status is None or self.status in _ENDPOINT_FAILURES or self.status >= 500

    @override
    def __str__(self) -> str:
        if self.status is None:
            return self.message
        return f"the policy endpoint answered {self.status}: {self.message}"
