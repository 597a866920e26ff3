"""HTTP over aiohttp, past the environment's proxies or through them, and why it failed.

For the policy's calls, and for whoever else keeps many requests open at once. httpx's own pool
looks at every connection for every request, which at 512 streams costs twenty times as much, and
the layers of its client cost more than aiohttp's whole exchange; `tools/bench/policy_transport.py`
has the comparison.
"""

import os
import ssl
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Final, override
from urllib.parse import urlsplit

import aiohttp
import certifi
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ConnectionKey
from aiohttp.http import HttpProcessingError

from osmosis_ai.rollout.policy._endpoint import Endpoint, basic_authorization
from osmosis_ai.rollout.policy._pool import PooledSession
from osmosis_ai.rollout.policy._proxies import Proxy, environment_proxy

__all__ = [
    "FAILURES",
    "FINAL_FAILURES",
    "PooledSession",
    "Proxy",
    "UnsendableError",
    "basic_authorization",
    "describe_failure",
    "environment_proxy",
    "failure_reason",
    "new_session",
    "proxy_note",
    "retry_after_sec",
    "send",
    "tls_context",
]

FAILURES: Final = (aiohttp.ClientError, HttpProcessingError, OSError)
"""What a request, or the reading of its answer, may fail with; timeouts are among them."""

# Deadlines are the rollouts' own. These are for peers that died without a word.
_CONNECT_SEC: Final = 30.0
_SILENCE_SEC: Final = 600.0
# uvicorn, and so most inference servers, drops an idle connection after 5 s: be first.
_IDLE_SEC: Final = 4.0
_SLICE_BYTES: Final = 256 * 1024


class UnsendableError(aiohttp.ClientError):
    """A request is wrong in itself, or its proxy is, and another attempt would be as well."""


FINAL_FAILURES: Final = (UnsendableError, aiohttp.SocketTimeoutError)
"""Those that are not tried again; who took a request, and then said nothing for so long, is not
asked to do it twice.
"""


class _Connector(aiohttp.TCPConnector):
    """Drops what a connection has not sent yet when it closes.

    aiohttp would keep it open until that is sent: for ever, with a peer that does not read.
    """

    @override
    def _release(
        self, key: ConnectionKey, protocol: ResponseHandler, *, should_close: bool = False
    ) -> None:
        transport = protocol.transport
        is_closing = should_close or protocol.should_close
        if is_closing and transport is not None and transport.get_write_buffer_size():
            transport.abort()
        super()._release(key, protocol, should_close=should_close)


def new_session(tls: ssl.SSLContext | bool = True) -> aiohttp.ClientSession:
    """Return a session with connections of its own, inside the event loop that will use it.

    As many connections are open as requests are, and no request waits for one.

    Args:
        tls: What certificates are checked with; `send` brings its own.
    """
    return aiohttp.ClientSession(
        connector=_Connector(limit=0, keepalive_timeout=_IDLE_SEC, ssl=tls),
        # One endpoint's cookies are none of the next one's business.
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, connect=_CONNECT_SEC, sock_read=_SILENCE_SEC),
    )


async def send(
    session: aiohttp.ClientSession,
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes | None = None,
) -> aiohttp.ClientResponse:
    """Send a request and return its response once the head is there; close it when done.

    It goes through a proxy where the environment asks for that; loopback is never behind one.
    Redirects are not followed.

    Raises:
        aiohttp.ClientError: nothing came of it; `FAILURES` are what it may be.
        UnsendableError: nothing can come of it.
    """
    target = urlsplit(url)
    proxy = environment_proxy(target.scheme, target.hostname or "")
    if proxy and not proxy.url.startswith("http"):
        msg = "the environment names a proxy, and only http:// and https:// ones can be used"
        raise UnsendableError(msg)
    key = proxy.authorization if proxy else None
    try:
        return await session.request(
            method,
            url,
            headers=headers if body is None else {**headers, "Content-Length": str(len(body))},
            data=body if body is None or len(body) <= _SLICE_BYTES else _slices(body),
            allow_redirects=False,
            proxy=proxy.url if proxy else None,
            # aiohttp turns it into Proxy-Authorization.
            proxy_headers={"Authorization": key} if key else None,
            ssl=tls_context() if proxy or target.scheme == "https" else True,
        )
    except aiohttp.ClientConnectionError:
        raise  # a certificate that is refused is a ValueError too
    except (ValueError, aiohttp.NonHttpUrlClientError) as error:
        # Its text can repeat headers, so neither show nor chain it.
        msg = f"the request cannot be sent ({type(error).__name__})"
        raise UnsendableError(msg) from None


async def _slices(body: bytes) -> AsyncIterator[bytes]:
    # A large body written at once would hold up the loop.
    for start in range(0, len(body), _SLICE_BYTES):
        yield body[start : start + _SLICE_BYTES]


def failure_reason(error: Exception) -> str:
    """Return for people what one of the `FAILURES` is; it repeats nothing that was sent or came."""
    match error:
        case UnsendableError():
            return str(error)
        case aiohttp.ClientHttpProxyError():
            return f"the proxy answered with {error.status}"
        case aiohttp.ClientConnectorCertificateError():
            cause = error.certificate_error
            return f"cannot connect to {error.host}:{error.port}: {cause}"
        case aiohttp.ClientConnectorError():
            # aiohttp's own text speaks of TLS settings, and shows asyncio's calls.
            return f"cannot connect to {error.host}:{error.port}: {_os_reason(error.os_error)}"
        case aiohttp.ConnectionTimeoutError():
            return f"no connection within {_CONNECT_SEC:.0f} s"
        case TimeoutError():
            return f"nothing came for {_SILENCE_SEC:.0f} s"
        case aiohttp.ClientPayloadError() | aiohttp.ClientConnectionError() | OSError():
            return "the connection was lost"
        case _:
            return "the server did not answer in HTTP"


def proxy_note(url: str) -> str:
    """Return what to add to an error about a URL: the proxy that is on the way there, if any."""
    target = urlsplit(url)
    proxy = environment_proxy(target.scheme, target.hostname or "")
    return f" through the environment's proxy {proxy.url}" if proxy else ""


def describe_failure(error: Exception, endpoint: Endpoint) -> str:
    """Return for people what one of the `FAILURES` of a call is, and where it came about."""
    return (
        f"{endpoint.redact(failure_reason(error))} ({endpoint.shown}{proxy_note(endpoint.shown)})"
    )


def _os_reason(error: OSError) -> str:
    number = error.errno or 0
    # TLS numbers its errors by itself.
    is_of_system = number > 0 and not isinstance(error, ssl.SSLError)
    return os.strerror(number) if is_of_system else str(error) or "the connection was lost"


def retry_after_sec(value: str) -> float | None:
    """Return how long a `Retry-After` header's value asks to wait, in seconds from now.

    Format: RFC 9110, section 10.2.3. None if it cannot be read; the past is 0.
    """
    try:
        seconds = float(value)
    except ValueError:
        try:
            when = parsedate_to_datetime(value)
        except (ValueError, OverflowError):
            return None
        seconds = (when.replace(tzinfo=when.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
    # Not max(): a comparison with nan is False, whichever way.
    return seconds if seconds > 0 else 0.0


@cache
def tls_context() -> ssl.SSLContext:
    """Return what servers' certificates are checked with: certifi's list, or `SSL_CERT_FILE` and
    `SSL_CERT_DIR`.

    Raises:
        UnsendableError: the file cannot be read.
    """
    # Reading the certificates takes tens of milliseconds, and any number of loops can share them.
    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    if not (file or folder):
        return ssl.create_default_context(cafile=certifi.where())
    try:
        return ssl.create_default_context(cafile=file or None, capath=folder or None)
    except OSError as error:
        msg = f"the certificates of SSL_CERT_FILE cannot be read: {error.strerror}"
        raise UnsendableError(msg) from error
