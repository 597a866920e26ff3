"""What can go wrong between a client and a rollout server."""


class RolloutAdmissionTimeoutError(TimeoutError):
    """The server had no capacity until the admission deadline; the rollout did not start."""


class RolloutProtocolError(Exception):
    """The server refused, could not be reached, or answered what the protocol does not know.

    Attributes:
        status_code: The HTTP status of the answer, or None when no answer came.
    """

    def __init__(self, message: str, *, status_code: int | None = None) -> None:
        super().__init__(message)
        self.status_code = status_code
