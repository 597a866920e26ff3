"""A gateway between a test, which plays the rollouts, and scripted upstreams."""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from osmosis_ai.rollout.eval import DatasetRow
from osmosis_ai.rollout.eval._outcomes import Attempt, Job
from osmosis_ai.rollout.eval._policy import Endpoint, Policy
from osmosis_ai.rollout.policy import PolicyClient

QUESTION: list[dict[str, Any]] = [{"role": "user", "content": "2+2?"}]


def job(rollout_id: str = "r-1", prompt: Sequence[Mapping[str, Any]] = QUESTION) -> Job:
    """Return a rollout of the first row."""
    return Job(
        DatasetRow(0, None, [dict(m) for m in prompt], None, None), Attempt(1, None), rollout_id
    )


@dataclass(frozen=True)
class Between:
    """A running gateway, one rollout of it, and a plain HTTP client for that rollout."""

    gateway: Policy
    endpoint: Endpoint
    http: httpx.AsyncClient
    output: Path

    @property
    def policy(self) -> PolicyClient:
        """The policy as workflows call it."""
        return PolicyClient(self.endpoint.url, api_key=self.endpoint.key)

    def stream(self, **body: Any) -> AbstractAsyncContextManager[httpx.Response]:
        """Ask for a stream; the response's bytes are as they came."""
        asked = {"model": "osmosis-rollout", "messages": QUESTION, "stream": True} | body
        return self.http.stream("POST", f"{self.endpoint.url}/chat/completions", json=asked)

    async def bytes_of(self, **body: Any) -> bytes:
        """Return a whole stream."""
        async with self.stream(**body) as response:
            return await response.aread()

    async def ask(self, **body: Any) -> httpx.Response:
        """Ask for a completion that is no stream."""
        asked = {"model": "osmosis-rollout", "messages": QUESTION} | body
        return await self.http.post(f"{self.endpoint.url}/chat/completions", json=asked)

    async def post(self, body: bytes, **headers: str) -> httpx.Response:
        """Send any bytes."""
        url = f"{self.endpoint.url}/chat/completions"
        return await self.http.post(url, content=body, headers=headers)

    async def call_back(self, messages: Sequence[Mapping[str, Any]] | None = None) -> Any:
        """Tell the gateway that the rollout ended, as a server does, and return its answer."""
        sample = None if messages is None else {"messages": list(messages)}
        response = await self.http.post(self.endpoint.callback_url or "", json={"sample": sample})
        assert response.is_success
        return response.json()["trajectory"]["samples"]["gateway"]

    async def end(self, messages: Sequence[Mapping[str, Any]] | None = None) -> dict[str, Any]:
        """End the rollout, with a sample or without, and return what the gateway reports."""
        await self.call_back(messages)
        report = self.gateway.report(job(), messages)
        assert report is not None
        json.dumps(report, allow_nan=False)
        return report

    async def findings(self, messages: Sequence[Mapping[str, Any]] | None = None) -> dict[str, str]:
        """End the rollout and return what is found, in words by kind."""
        report = await self.end(messages)
        return {finding["kind"]: finding["message"] for finding in report["findings"]}


type Start = Callable[..., AbstractAsyncContextManager[Between]]
"""Starts a gateway before upstreams, given by their base URLs, with further options."""
