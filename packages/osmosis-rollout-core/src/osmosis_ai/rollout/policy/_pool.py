"""One pooled HTTP client per event loop, for every rollout that runs on it."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import httpx

    from osmosis_ai.rollout.policy.transport import PooledTransport

# Deadlines are the rollout's. This is for endpoints that died without a word.
SILENCE_SEC: Final = 600.0
"""How long to wait for the next byte of an answer."""
_CONNECT_SEC: Final = 30.0


@dataclass(eq=False)
class _Pool:
    """A client over its transport, the generator that owns it, and how many calls use it."""

    client: "httpx.AsyncClient"
    transport: "PooledTransport"
    lifetime: AsyncGenerator["tuple[httpx.AsyncClient, PooledTransport]"]
    calls: int = 0
    is_retired: bool = False

    async def close_if_done(self) -> None:
        if self.is_retired and not self.calls:
            await self.lifetime.aclose()


_pools: dict[asyncio.AbstractEventLoop, _Pool] = {}


@asynccontextmanager
async def pooled_client() -> AsyncGenerator["httpx.AsyncClient"]:
    """Lend the running loop's client to a call; the first call makes it."""
    async with _lent() as pool:
        yield pool.client


@asynccontextmanager
async def pooled_transport() -> AsyncGenerator["PooledTransport"]:
    """Lend the transport under that client: half the CPU, for who needs nothing of the client."""
    async with _lent() as pool:
        yield pool.transport


@asynccontextmanager
async def _lent() -> AsyncGenerator[_Pool]:
    loop = asyncio.get_running_loop()
    if loop not in _pools:
        # Loops of other threads come and go meanwhile, so go over a copy.
        for ended in [known for known in list(_pools) if known.is_closed()]:
            _pools.pop(ended, None)
        lifetime = _lifetime(loop)
        # Nothing in there waits before the yield, so no other task gets in between.
        client, transport = await anext(lifetime)
        _pools[loop] = _Pool(client, transport, lifetime)
    pool = _pools[loop]
    pool.calls += 1
    try:
        yield pool
    finally:
        pool.calls -= 1
        await pool.close_if_done()


async def close_policy_clients() -> None:
    """Close the running loop's pooled client; a later call to the policy makes a new one.

    Calls that still run, of another app on the same loop for one, keep their connections and the
    last of them closes the client. A loop that ends by itself, as in `asyncio.run`, closes its
    client too.
    """
    if pool := _pools.pop(asyncio.get_running_loop(), None):
        pool.is_retired = True
        await pool.close_if_done()


async def _lifetime(
    loop: asyncio.AbstractEventLoop,
) -> AsyncGenerator["tuple[httpx.AsyncClient, PooledTransport]"]:
    from osmosis_ai.rollout.policy.transport import PooledTransport

    # A generator, because a loop that ends closes its generators and so closes the client.
    transport = PooledTransport()
    client = _new_client(transport)
    try:
        yield client, transport
    finally:
        if loop in _pools and _pools[loop].client is client:
            del _pools[loop]
        await client.aclose()


def _new_client(transport: "PooledTransport") -> "httpx.AsyncClient":
    from http.cookiejar import CookieJar, DefaultCookiePolicy

    import httpx

    return httpx.AsyncClient(
        transport=transport,
        timeout=httpx.Timeout(SILENCE_SEC, connect=_CONNECT_SEC, pool=None),
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        # What of the environment applies, the transport decides.
        trust_env=False,
    )
