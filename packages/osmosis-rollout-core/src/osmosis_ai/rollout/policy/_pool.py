"""One HTTP session per event loop, for every rollout that runs on it."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import aiohttp


@dataclass(eq=False)
class _Pool:
    """A session, the generator that owns it, and how many calls use it."""

    session: "aiohttp.ClientSession"
    lifetime: AsyncGenerator["aiohttp.ClientSession"]
    calls: int = 0
    is_retired: bool = False

    async def close_if_done(self) -> None:
        if self.is_retired and not self.calls:
            await self.lifetime.aclose()


_pools: dict[asyncio.AbstractEventLoop, _Pool] = {}


class PooledSession:
    """Lends the running loop's session to a call; the first call makes it."""

    async def __aenter__(self) -> "aiohttp.ClientSession":
        loop = asyncio.get_running_loop()
        if loop not in _pools:
            _forget_ended_loops()
            lifetime = _lifetime(loop)
            # Nothing in there waits before the yield, so no other task gets in between.
            _pools[loop] = _Pool(await anext(lifetime), lifetime)
        self._pool = _pools[loop]
        self._pool.calls += 1
        return self._pool.session

    async def __aexit__(self, *_: object) -> None:
        self._pool.calls -= 1
        await self._pool.close_if_done()


async def close_policy_clients() -> None:
    """Close the running loop's session; a later call to the policy makes a new one.

    Calls that still run, of another app on the same loop for one, keep their connections and the
    last of them closes the session. A loop that ends by itself, as in `asyncio.run`, closes its
    session too.
    """
    if pool := _pools.pop(asyncio.get_running_loop(), None):
        pool.is_retired = True
        await pool.close_if_done()


async def _lifetime(
    loop: asyncio.AbstractEventLoop,
) -> AsyncGenerator["aiohttp.ClientSession"]:
    from osmosis_ai.rollout.policy.transport import new_session

    # A generator, because a loop that ends closes its generators and so closes the session.
    session = new_session()
    try:
        yield session
    finally:
        if loop in _pools and _pools[loop].session is session:
            del _pools[loop]
        await session.close()


def _forget_ended_loops() -> None:
    # Loops of other threads come and go meanwhile, so go over a copy.
    for ended in [known for known in list(_pools) if known.is_closed()]:
        _pools.pop(ended, None)
