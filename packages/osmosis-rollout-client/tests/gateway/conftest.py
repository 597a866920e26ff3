"""Fixtures of the gateway's tests; their helpers in this folder can be imported by name."""

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from osmosis_ai.rollout.eval import EvalOptions
from osmosis_ai.rollout.eval._policies import policy_of, started

sys.path.insert(0, str(Path(__file__).parent))

from between import Between, Start, job


@pytest.fixture
def between(tmp_path: Path) -> Start:
    """Return what starts a gateway before upstreams, given by their base URLs."""

    @asynccontextmanager
    async def start(*base_urls: str, **changes: Any) -> AsyncGenerator[Between]:
        settings: dict[str, Any] = {"url": "http://127.0.0.1:9", "model": "real"} | changes
        output = tmp_path / "run"
        output.mkdir()
        options = EvalOptions(
            dataset=tmp_path / "data.jsonl", output=output, base_url=list(base_urls), **settings
        )
        async with started(policy_of(options)) as gateway:
            endpoint = gateway.endpoint(job())
            headers = {"Authorization": f"Bearer {endpoint.key}"}
            async with httpx.AsyncClient(headers=headers, timeout=30, trust_env=False) as http:
                yield Between(gateway, endpoint, http, output)

    return start
