"""One pooled HTTP client per event loop, for every rollout that runs on it."""

import asyncio
from collections.abc import AsyncGenerator
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import httpx

# Deadlines are the rollout's. This is for endpoints that died without a word.
SILENCE_SEC: Final = 600.0
"""How long to wait for the next byte of an answer."""
_CONNECT_SEC: Final = 30.0
type _Lifetime = AsyncGenerator["httpx.AsyncClient"]

_lifetimes: dict[asyncio.AbstractEventLoop, tuple["httpx.AsyncClient", _Lifetime]] = {}


async def pooled_client() -> "httpx.AsyncClient":
    """Return the running loop's client; the first call makes it."""
    loop = asyncio.get_running_loop()
    if loop not in _lifetimes:
        # Loops of other threads come and go meanwhile, so go over a copy.
        for ended in [known for known in list(_lifetimes) if known.is_closed()]:
            _lifetimes.pop(ended, None)
        lifetime = _lifetime(loop)
        # Nothing in there waits before the yield, so no other task gets in between.
        _lifetimes[loop] = (await anext(lifetime), lifetime)
    return _lifetimes[loop][0]


async def close_policy_clients() -> None:
    """Close the running loop's pooled client; a later call to the policy makes a new one.

    A loop that ends by itself, as in `asyncio.run`, closes its client too.
    """
    known = _lifetimes.get(asyncio.get_running_loop())
    if known is not None:
        await known[1].aclose()


async def _lifetime(loop: asyncio.AbstractEventLoop) -> _Lifetime:
    # A generator, because a loop that ends closes its generators and so closes the client.
    client = _new_client()
    try:
        yield client
    finally:
        _lifetimes.pop(loop, None)
        await client.aclose()


def _new_client() -> "httpx.AsyncClient":
    import httpx

    from osmosis_ai.rollout.policy.transport import PooledTransport

    return httpx.AsyncClient(
        transport=PooledTransport(),
        timeout=httpx.Timeout(SILENCE_SEC, connect=_CONNECT_SEC, pool=None),
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        # What of the environment applies, the transport decides.
        trust_env=False,
    )
