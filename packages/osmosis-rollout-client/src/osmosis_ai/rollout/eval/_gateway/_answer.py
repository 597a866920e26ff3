"""One upstream, and one answer of it."""

import time
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit, urlunsplit

import aiohttp

from osmosis_ai.rollout.policy.answers import Endpoint
from osmosis_ai.rollout.policy.transport import FAILURES, describe_failure


class UpstreamError(Exception):
    """No upstream answered, or an answer broke off; the text says which and why, without keys."""


class Upstream:
    """An endpoint, and how it is.

    Attributes:
        endpoint: Where it is, and its key.
        models_url: Where it lists its models; the query may hold secrets.
        refused: The parameters of the gateway's own that it does not take.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        parts = urlsplit(endpoint.url)
        base_path = parts.path.removesuffix("/chat/completions")
        self.models_url: str = urlunsplit(parts._replace(path=f"{base_path}/models"))
        self.refused: set[str] = set()
        self._calls = 0
        self._served = 0
        self._rests_until = 0.0
        self._doubted_until = 0.0

    @property
    def load(self) -> tuple[float, bool, int, int]:
        """What makes one upstream less busy, or more to be trusted, than another."""
        is_doubted = time.monotonic() < self._doubted_until
        return self.rest_sec, is_doubted, self._calls, self._served

    @property
    def rest_sec(self) -> float:
        """How long it still wants no call, in seconds."""
        return max(0.0, self._rests_until - time.monotonic())

    def rest(self, seconds: float) -> None:
        """Give it no call for so long."""
        self._rests_until = time.monotonic() + seconds

    def doubt(self, seconds: float) -> None:
        """Prefer others for so long; where there are none it gets its calls."""
        self._doubted_until = time.monotonic() + seconds

    @contextmanager
    def busy(self) -> Generator[None]:
        """Count a call while the context lasts."""
        self._calls += 1
        self._served += 1
        try:
            yield
        finally:
            self._calls -= 1


class Answer:
    """An upstream's answer whose body has begun, or a refusal; close it when done.

    Attributes:
        upstream: Whose it is.
        status: The HTTP status.
        headers: The headers.
        first: The first bytes of the body; none where it is empty, or a refusal's.
        retries: How many tries it took before.
        closing: What happens when it is closed.
    """

    def __init__(
        self,
        upstream: Upstream,
        response: aiohttp.ClientResponse,
        first: bytes,
        retries: int,
        closing: ExitStack,
    ) -> None:
        self.upstream = upstream
        self.status: int = response.status
        self.headers: Mapping[str, str] = response.headers
        self.first = first
        self.retries = retries
        self.closing = closing
        self._response = response

    @property
    def is_document(self) -> bool:
        """Whether the body is one JSON document rather than an event stream."""
        kind = self.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        return kind == "application/json" or self.first.lstrip().startswith(b"{")

    async def read(self) -> bytes:
        """Return the next bytes as they come, none at the end.

        Raises:
            UpstreamError: the connection broke.
        """
        try:
            return await self._response.content.readany()
        except FAILURES as error:
            reason = describe_failure(error, self.upstream.endpoint)
            msg = f"the upstream's answer broke off: {reason}"
            raise UpstreamError(msg) from None

    def redact(self, data: bytes) -> bytes:
        """Return bytes of the answer without the upstream's key and its like."""
        for secret in self.upstream.endpoint.secrets:
            data = data.replace(secret.encode(), b"[secret]")
        return data

    def close(self) -> None:
        """End the call at the upstream too, unless it has been read to its end."""
        self.closing.close()
