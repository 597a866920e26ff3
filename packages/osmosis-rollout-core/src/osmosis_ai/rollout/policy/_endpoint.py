"""Where the policy is, and how its address and key may be shown."""

import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Self, cast
from urllib.parse import (
    SplitResult,
    parse_qsl,
    unquote,
    unquote_plus,
    urlencode,
    urlsplit,
    urlunsplit,
)

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_SAFE = re.compile(r"[\x21-\x7e]+(?: +[\x21-\x7e]+)*")
# What says how the request is sent, by whom it is allowed, and what can be read of its answer.
_OWN_HEADERS: Final = frozenset(
    {"accept", "accept-encoding", "authorization", "connection", "content-encoding"}
    | {"content-length", "content-type", "expect", "host", "proxy-authorization", "te", "trailer"}
    | {"transfer-encoding", "upgrade"}
)
# Below that length, a text without it would be spoilt rather than a secret be kept.
_MIN_SECRET_CHARS: Final = 8


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One chat-completions route and what opens it.

    Attributes:
        url: The whole URL, without user and password; its query may hold secrets.
        shown: The URL for error texts, without the query.
        authorization: The Authorization header's value, or None to send none.
        secrets: The key or password, and what else no text may repeat; longer ones first.
        extra_headers: Further headers of the request.
    """

    url: str = field(repr=False)
    shown: str
    authorization: str | None = field(default=None, repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)
    extra_headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)

    @classmethod
    def at(
        cls,
        base_url: str,
        api_key: str | None,
        *,
        extra_headers: Mapping[str, str] | None = None,
        extra_query: Mapping[str, object] | None = None,
    ) -> Self:
        """Return the endpoint below an OpenAI-style base URL.

        White space around the key is dropped: keys come out of files that end in a newline. A user
        and password in the URL serve when there is no key.

        Args:
            base_url: The URL.
            api_key: Bearer for it.
            extra_headers: Headers to send besides those that the call itself needs.
            extra_query: What to add to the URL's query.

        Raises:
            ValueError: the URL is no http(s) URL, the key or a further header cannot stand in one,
                or what is extra would replace what the call needs.
        """
        parts = _split(base_url)
        headers, added = dict(extra_headers or {}), _query(parts.query, extra_query or {})
        _check_headers(headers)
        bare = parts._replace(
            netloc=parts.netloc.rpartition("@")[2],
            path=f"{parts.path.rstrip('/')}/chat/completions",
            query="&".join(filter(None, (parts.query, added))),
            fragment="",
        )
        authorization = basic_authorization(parts)
        secret = unquote(parts.password or parts.username or "")
        if key := (api_key or "").strip():
            if not _HEADER_SAFE.fullmatch(key):
                msg = "the policy's api_key cannot be sent: a header takes visible ASCII only"
                raise ValueError(msg)
            authorization, secret = f"Bearer {key}", key
        values = [*headers.values(), *_values(parts.query), *_values(added)]
        return cls(
            url=urlunsplit(bare),
            shown=urlunsplit(bare._replace(query="")),
            authorization=authorization,
            # Servers repeat the header as it came, too.
            secrets=_secrets({secret, (authorization or "").partition(" ")[2]}, values),
            extra_headers=headers,
        )

    @property
    def headers(self) -> dict[str, str]:
        """The headers of a call."""
        headers = {
            **self.extra_headers,
            "Accept": "text/event-stream, application/json",
            # A compressed stream comes in the compressor's blocks instead of as it is made.
            "Accept-Encoding": "identity",
            "Content-Type": "application/json",
        }
        if self.authorization:
            headers["Authorization"] = self.authorization
        return headers

    def redact(self, text: str) -> str:
        """Return the text without keys and their like, which servers repeat in their errors."""
        for secret in self.secrets:
            text = text.replace(secret, "[secret]")
        return text


def basic_authorization(parts: SplitResult) -> str | None:
    """Return the Authorization header for a URL's user and password, or None if it has none."""
    if not (parts.username or parts.password):
        return None
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    return f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"


def _check_headers(headers: Mapping[str, str]) -> None:
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            msg = "extra_headers holds a name that no header can have"
            raise ValueError(msg)
        if name.lower() in _OWN_HEADERS:
            hint = ": give the client an api_key" if name.lower() == "authorization" else ""
            msg = f"extra_headers cannot set {name}, which is the policy client's own{hint}"
            raise ValueError(msg)
        if not _HEADER_SAFE.fullmatch(value):
            msg = f"extra_headers cannot send its {name}: a header takes visible ASCII only"
            raise ValueError(msg)


def _query(given: str, extra: Mapping[str, object]) -> str:
    if not extra:
        return ""
    taken = {name for name, _ in parse_qsl(given, keep_blank_values=True)}
    if repeated := sorted(taken & extra.keys()):
        msg = f"extra_query cannot set {', '.join(repeated)}, which the policy's URL has already"
        raise ValueError(msg)
    pairs = [(name, _spelled(one)) for name, value in extra.items() for one in _each(value)]
    return urlencode(pairs)


def _each(value: object) -> Iterable[object]:
    return cast("Iterable[object]", value) if isinstance(value, list | tuple) else (value,)


def _spelled(value: object) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _values(query: str) -> Iterator[str]:
    """Yield a query's values, as they are written and as they are meant."""
    for pair in query.split("&"):
        value = pair.partition("=")[2]
        yield from (value, unquote_plus(value))


def _secrets(keys: set[str], values: Iterable[str]) -> tuple[str, ...]:
    words = {word for value in values for word in value.split() if len(word) >= _MIN_SECRET_CHARS}
    return tuple(sorted(filter(None, keys | words), key=len, reverse=True))


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
