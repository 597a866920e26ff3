"""How often Python's collector looks for garbage while a server runs."""

import asyncio
import gc
from collections.abc import AsyncGenerator, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from fastapi import FastAPI

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
        assert gc.get_threshold() == (35_000, 7, 5)
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
        assert thread.submit(asyncio.run, overlap()).result(30) == 35_000
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


async def test_it_is_as_before_after_an_app_that_did_not_start_or_end_well() -> None:
    """The user's lifespan fails before the app serves, or what the app serves in fails."""

    @asynccontextmanager
    async def broken(app: FastAPI) -> AsyncGenerator[None]:
        raise RuntimeError
        yield

    for lifespan in (broken, None):
        app = create_rollout_server(backend=HeldBackend(), lifespan=lifespan)
        with pytest.raises(RuntimeError):
            async with app.router.lifespan_context(app):
                raise RuntimeError
        assert gc.get_threshold() == (1000, 7, 5)
