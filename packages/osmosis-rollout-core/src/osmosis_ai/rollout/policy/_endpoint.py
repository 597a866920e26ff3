"""Where the policy is, and how its address and key may be shown."""

import re
from dataclasses import dataclass, field
from typing import Final, Self
from urllib.parse import urlsplit, urlunsplit

LOOPBACK_HOSTS: Final = ("localhost", "127.0.0.1", "::1")
_HEADER_SAFE = re.compile(r"[\x21-\x7e]+(?: +[\x21-\x7e]+)*")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One chat-completions route and the key for it.

    Attributes:
        url: The whole URL; it may hold secrets, so errors show `shown` instead.
        shown: The URL without user, password and query.
        api_key: The bearer, or None to send no Authorization header.
    """

    url: str = field(repr=False)
    shown: str
    api_key: str | None = field(repr=False)

    @classmethod
    def at(cls, base_url: str, api_key: str | None) -> Self:
        """Return the endpoint below an OpenAI-style base URL.

        White space around the key is dropped: keys come out of files that end in a newline.

        Raises:
            ValueError: the URL is no http(s) URL, or the key cannot stand in a header.
        """
        parts = urlsplit(base_url.strip())
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            msg = "the policy's URL must start with http:// or https:// and name a host"
            raise ValueError(msg)
        key = (api_key or "").strip()
        if key and not _HEADER_SAFE.fullmatch(key):
            msg = "the policy's api_key cannot be sent: only visible ASCII fits into a header"
            raise ValueError(msg)
        parts = parts._replace(path=f"{parts.path.rstrip('/')}/chat/completions", fragment="")
        shown = parts._replace(netloc=parts.netloc.rpartition("@")[2], query="")
        return cls(urlunsplit(parts), urlunsplit(shown), key or None)

    @property
    def host(self) -> str:
        """The host's name or address."""
        return urlsplit(self.url).hostname or ""

    @property
    def is_loopback(self) -> bool:
        """Whether the endpoint is on this machine, where no proxy has a place."""
        return self.host in LOOPBACK_HOSTS

    def redact(self, text: str) -> str:
        """Return the text without the key, which some servers repeat in their errors."""
        return text.replace(self.api_key, "[api key]") if self.api_key else text
