"""The polling protocol: accept, wait, read, by lease."""

from osmosis_ai.rollout.server import create_rollout_server

from .harness import HeldBackend, serving


async def test_a_rollout_is_accepted_polled_and_read() -> None:
    backend = HeldBackend()
    async with serving(create_rollout_server(backend=backend)) as client:
        await client.start("r-1")
        backend.release.set()
        result = await client.result("r-1")
    assert result["status"] == "success"
    assert result["sample"]["reward"] == 1.0
