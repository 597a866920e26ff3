"""The transport under httpx: a session of core's, whose cost per request does not grow.

httpx's own pool looks at every connection for every request.
"""

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import override

import aiohttp
import httpx
from httpx_aiohttp import AiohttpTransport

from osmosis_ai.rollout.policy.transport import (
    FAILURES,
    Proxy,
    environment_proxy,
    failure_reason,
    new_session,
    tls_context,
)


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
    """Sends requests over one session, through a proxy where the environment asks for it.

    It has to be made inside the event loop that uses it.

    Raises:
        httpx.ConnectError: the certificates that the environment names cannot be read.
    """

    def __init__(self) -> None:
        try:
            self._session = new_session(tls_context())
        except FAILURES as error:
            raise httpx.ConnectError(failure_reason(error)) from error
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
                raise httpx.ConnectError(failure_reason(error.__cause__)) from error.__cause__
            raise
        except FAILURES as error:
            # What httpx-aiohttp has no word for: the server's bytes are no HTTP.
            raise httpx.RemoteProtocolError(failure_reason(error)) from error
        response.stream = _Answer(response.stream)
        return response

    def _through(self, proxy: Proxy | None) -> AiohttpTransport:
        if proxy is None:
            return AiohttpTransport(verify=tls_context(), client=self._session)
        if not proxy.url.startswith("http"):
            msg = "only http:// and https:// proxies can be used"
            raise httpx.ProxyError(msg)
        # aiohttp turns it into Proxy-Authorization.
        headers = {"Authorization": proxy.authorization} if proxy.authorization else None
        route = httpx.Proxy(proxy.url, headers=headers)
        return AiohttpTransport(verify=tls_context(), client=self._session, proxy=route)

    @override
    async def aclose(self) -> None:
        await self._session.close()
