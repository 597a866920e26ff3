"""Fixtures of this package's tests."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    """Run async tests on asyncio alone: the client belongs to it."""
    return "asyncio"
