"""The transport under httpx: aiohttp's connector, and the environment's proxies where they apply.

httpx's own pool looks at every connection for every request, which at 512 streams costs twenty
times as much; `tools/bench/policy_transport.py` has the comparison. For whoever else keeps many
requests open at once, too, together with what every sender of requests needs.
"""

import os
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Final, override

import aiohttp
import httpx
from httpx_aiohttp import AiohttpTransport

from osmosis_ai.rollout.policy._endpoint import basic_authorization
from osmosis_ai.rollout.policy._pool import pooled_client, pooled_transport
from osmosis_ai.rollout.policy._proxies import Proxy, environment_proxy

__all__ = [
    "PooledTransport",
    "Proxy",
    "basic_authorization",
    "environment_proxy",
    "in_slices",
    "pooled_client",
    "pooled_transport",
    "retry_after_sec",
    "tls_context",
]

# uvicorn, and so most inference servers, drops an idle connection after 5 s: be first.
_IDLE_SEC: Final = 4.0
_SLICE_BYTES: Final = 256 * 1024


class _Answer(httpx.AsyncByteStream):
    """An answer's body whose closing takes nothing back of what was read."""

    def __init__(self, stream: httpx.SyncByteStream | httpx.AsyncByteStream) -> None:
        assert isinstance(stream, httpx.AsyncByteStream)
        self._stream = stream

    @override
    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._stream.__aiter__()

    @override
    async def aclose(self) -> None:
        # Closing waits for the request to be sent, and a server that answers early (413) may not
        # have read it.
        with suppress(OSError, aiohttp.ClientError):
            await self._stream.aclose()


class PooledTransport(httpx.AsyncBaseTransport):
    """Sends requests over one connector, through a proxy where the environment asks for it.

    As many connections are open as requests are, and no request waits for one. Loopback is never
    behind a proxy. It has to be made inside the event loop that uses it.
    """

    def __init__(self) -> None:
        self._tls = tls_context()
        self._session = aiohttp.ClientSession(
            # The running rollouts bound the connections, and no call waits for one.
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_IDLE_SEC, ssl=self._tls),
            # One endpoint's cookies are none of the next one's business.
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        self._by_proxy: dict[Proxy | None, AiohttpTransport] = {}

    @override
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        proxy = environment_proxy(request.url.scheme, request.url.host)
        if proxy not in self._by_proxy:
            self._by_proxy[proxy] = self._through(proxy)
        try:
            response = await self._by_proxy[proxy].handle_async_request(request)
        except httpx.ConnectTimeout as error:
            # httpx-aiohttp calls every failure to connect a timeout.
            if isinstance(error.__cause__, aiohttp.ClientConnectorError):
                raise _connect_error(error.__cause__) from error.__cause__
            raise
        except aiohttp.ClientError as error:
            # What httpx-aiohttp has no word for: the server's bytes are no HTTP.
            msg = "the server did not answer in HTTP"
            raise httpx.RemoteProtocolError(msg) from error
        response.stream = _Answer(response.stream)
        return response

    def _through(self, proxy: Proxy | None) -> AiohttpTransport:
        if proxy is None:
            return AiohttpTransport(verify=self._tls, client=self._session)
        if not proxy.url.startswith("http"):
            msg = "only http:// and https:// proxies can be used"
            raise httpx.ProxyError(msg)
        # aiohttp turns it into Proxy-Authorization.
        headers = {"Authorization": proxy.authorization} if proxy.authorization else None
        route = httpx.Proxy(proxy.url, headers=headers)
        return AiohttpTransport(verify=self._tls, client=self._session, proxy=route)

    @override
    async def aclose(self) -> None:
        await self._session.close()


def _connect_error(error: aiohttp.ClientConnectorError) -> httpx.ConnectError:
    if isinstance(error, aiohttp.ClientSSLError):
        return httpx.ConnectError(str(error))
    # aiohttp's own text speaks of TLS settings, and shows asyncio's calls.
    number = error.os_error.errno or 0
    reason = os.strerror(number) if number > 0 else str(error.os_error)
    return httpx.ConnectError(f"cannot connect to {error.host}:{error.port}: {reason}")


def in_slices(body: bytes) -> bytes | AsyncIterator[bytes]:
    """Return a request's content: a large body written at once would hold up the loop.

    The request needs its `Content-Length` set, else slices are sent chunked.
    """
    return body if len(body) <= _SLICE_BYTES else _slices(body)


async def _slices(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), _SLICE_BYTES):
        yield body[start : start + _SLICE_BYTES]


def retry_after_sec(value: str) -> float | None:
    """Return how long a `Retry-After` header's value asks to wait, in seconds from now.

    Format: RFC 9110, section 10.2.3. None if it cannot be read; the past is 0.
    """
    try:
        seconds = float(value)
    except ValueError:
        try:
            when = parsedate_to_datetime(value)
        except ValueError:
            return None
        seconds = (when.replace(tzinfo=when.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
    # Not max(): a comparison with nan is False, whichever way.
    return seconds if seconds > 0 else 0.0


@cache
def tls_context() -> ssl.SSLContext:
    """Return what servers' certificates are checked with."""
    # Reading the certificates takes tens of milliseconds, and any number of loops can share them.
    return httpx.create_ssl_context()
