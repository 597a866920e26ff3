"""How often Python's collector looks for garbage while a server runs."""

import gc
from collections.abc import Generator

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
