"""Where the policy is, and how its address and key may be shown."""

import re
from base64 import b64encode
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

_HEADER_SAFE = re.compile(r"[\x21-\x7e]+(?: +[\x21-\x7e]+)*")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One chat-completions route and what opens it.

    Attributes:
        url: The whole URL, without user and password; its query may hold secrets.
        shown: The URL for error texts, without the query.
        authorization: The Authorization header's value, or None to send none.
        secret: The key or password, so that no text repeats it.
    """

    url: str = field(repr=False)
    shown: str
    authorization: str | None = field(default=None, repr=False)
    secret: str = field(default="", repr=False)

    @classmethod
    def at(cls, base_url: str, api_key: str | None) -> Self:
        """Return the endpoint below an OpenAI-style base URL.

        White space around the key is dropped: keys come out of files that end in a newline. A user
        and password in the URL serve when there is no key.

        Raises:
            ValueError: the URL is no http(s) URL, or the key cannot stand in a header.
        """
        parts = _split(base_url)
        path = f"{parts.path.rstrip('/')}/chat/completions"
        bare = parts._replace(netloc=parts.netloc.rpartition("@")[2], path=path, fragment="")
        url, shown = urlunsplit(bare), urlunsplit(bare._replace(query=""))
        if key := (api_key or "").strip():
            if not _HEADER_SAFE.fullmatch(key):
                msg = "the policy's api_key cannot be sent: a header takes visible ASCII only"
                raise ValueError(msg)
            return cls(url, shown, f"Bearer {key}", key)
        return cls(url, shown, basic_authorization(parts), unquote(parts.password or ""))

    def redact(self, text: str) -> str:
        """Return the text without the key, which some servers repeat in their errors."""
        return text.replace(self.secret, "[secret]") if self.secret else text


def basic_authorization(parts: SplitResult) -> str | None:
    """Return the Authorization header for a URL's user and password, or None if it has none."""
    if not (parts.username or parts.password):
        return None
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    return f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"


def _split(url: str) -> SplitResult:
    msg = "the policy's URL must start with http:// or https:// and name a host"
    try:
        parts = urlsplit(url.strip())
        _ = parts.port  # raises when it is no port number
    except ValueError:
        raise ValueError(msg) from None
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError(msg)
    return parts
