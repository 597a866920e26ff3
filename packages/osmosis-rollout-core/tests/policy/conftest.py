"""What the policy client's tests share."""

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack

import pytest

from osmosis_ai.rollout.policy import PolicyClient, close_policy_clients
from osmosis_ai.rollout.testing import Reply, ScriptedPolicy

type Serve = Callable[..., tuple[PolicyClient, ScriptedPolicy]]


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the host's proxies and keys out of the tests."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "openai_api_key"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Start a policy that gives these replies and return a client for it, and the policy."""
    with ExitStack() as running:

        def start(*replies: Reply | str) -> tuple[PolicyClient, ScriptedPolicy]:
            policy = running.enter_context(ScriptedPolicy(*replies))
            return PolicyClient(policy.url), policy

        yield start
        await close_policy_clients()


@pytest.fixture
def unused_port() -> int:
    """Return a port of loopback on which nobody listens."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port
