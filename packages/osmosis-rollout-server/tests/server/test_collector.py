"""How often Python's collector looks for garbage while a server runs."""

import asyncio
import gc
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack

import pytest

from osmosis_ai.rollout.server import create_rollout_server

from .harness import HeldBackend, serving


@pytest.fixture(autouse=True)
def thresholds() -> Generator[None]:
    before = gc.get_threshold()
    gc.set_threshold(1000, 7, 5)
    yield
    gc.set_threshold(*before)


async def test_it_looks_less_often_while_the_app_serves() -> None:
    async with serving(create_rollout_server(backend=HeldBackend())):
        assert gc.get_threshold() == (50_000, 7, 5)
    assert gc.get_threshold() == (1000, 7, 5)


def test_the_last_app_of_the_process_restores_it() -> None:
    """Apps may end in any order."""

    async def overlap() -> int:
        first, other = (create_rollout_server(backend=HeldBackend()) for _ in range(2))
        async with AsyncExitStack() as inside:
            await inside.enter_async_context(first.router.lifespan_context(first))
            async with other.router.lifespan_context(other):
                await inside.aclose()
                return gc.get_threshold()[0]

    with ThreadPoolExecutor(1) as thread:  # where nobody handles signals, in whatever order
        assert thread.submit(asyncio.run, overlap()).result(30) == 50_000
    assert gc.get_threshold() == (1000, 7, 5)


@pytest.mark.parametrize("chosen", [0, 100_000])
async def test_what_the_user_chose_stays(chosen: int) -> None:
    """None at all, or still fewer; also what is chosen while the app serves."""
    gc.set_threshold(chosen)
    async with serving(create_rollout_server(backend=HeldBackend())):
        assert gc.get_threshold()[0] == chosen
    assert gc.get_threshold()[0] == chosen
    gc.set_threshold(1000)
    async with serving(create_rollout_server(backend=HeldBackend())):
        gc.set_threshold(chosen)
    assert gc.get_threshold()[0] == chosen
