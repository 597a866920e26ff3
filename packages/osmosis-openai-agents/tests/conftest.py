"""What the tests of the OpenAI Agents adapter share: a scripted policy, and a rollout around it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from osmosis_ai.rollout import RolloutContext
from osmosis_ai.rollout.testing import ScriptedPolicy

KEY = "sek-ret"


@pytest.fixture
def anyio_backend() -> str:
    """Run the asynchronous tests on asyncio."""
    return "asyncio"


@pytest.fixture(autouse=True)
def clean_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the host's endpoints and keys out, and artifacts out of its home."""
    for name in (
        "OSMOSIS_CHAT_COMPLETIONS_URL",
        "OSMOSIS_API_KEY",
        "OSMOSIS_ROLLOUT_ID",
        "OPENAI_API_KEY",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("_OSMOSIS_ROLLOUT_ARTIFACT_ROOT", str(tmp_path / "artifact-root"))


@pytest.fixture
def policy() -> Iterator[ScriptedPolicy]:
    """A policy with an empty script; tests add their replies."""
    with ScriptedPolicy() as running:
        yield running


@pytest.fixture
def rollout(policy: ScriptedPolicy) -> RolloutContext:
    """The rollout that the policy serves; tests enter it."""
    return RolloutContext(policy.url, KEY, "r-1")
