"""Real servers on loopback, and backends whose rollouts do what a test tells them."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, override

import httpx
import uvicorn
from fastapi import FastAPI

from osmosis_ai.rollout import (
    ExecutionBackend,
    ExecutionOutcome,
    ExecutionRequest,
    ExecutionResult,
    RolloutSample,
    RolloutStatus,
)
from osmosis_ai.rollout.types import POLLING_LEASE_HEADER

type Script = Callable[[ExecutionRequest], Awaitable[ExecutionOutcome]]

BODY: dict[str, Any] = {
    "initial_messages": [{"role": "user", "content": "2+2?"}],
    "label": "4",
    "chat_completions_url": "http://127.0.0.1:9/v1",
}


def succeeded(*messages: dict[str, Any], **sample: Any) -> ExecutionOutcome:
    """A graded success with this sample."""
    result = ExecutionResult(
        status=RolloutStatus.SUCCESS, sample=RolloutSample(messages=messages, **sample)
    )
    return ExecutionOutcome(workflow=result, grader=result)


class ScriptedBackend(ExecutionBackend):
    """Executes a function of the test's, and reports nothing by itself."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.requests: list[ExecutionRequest] = []

    @override
    async def execute(self, request: ExecutionRequest) -> ExecutionOutcome:
        self.requests.append(request)
        return await self.script(request)


class HeldBackend(ScriptedBackend):
    """Its rollouts wait until the test releases them, and count those that run."""

    def __init__(self, outcome: ExecutionOutcome | None = None) -> None:
        super().__init__(self._hold)
        self.outcome = outcome or succeeded(reward=1.0)
        self.release = asyncio.Event()
        self.running: set[str] = set()

    async def _hold(self, request: ExecutionRequest) -> ExecutionOutcome:
        self.running.add(request.id)
        try:
            await self.release.wait()
        finally:
            self.running.discard(request.id)
        return self.outcome


@dataclass
class Client:
    """What a trainer that polls does."""

    http: httpx.AsyncClient
    leases: dict[str, str] = field(default_factory=dict[str, str])

    async def post(self, rollout_id: str | None = None, **fields: Any) -> httpx.Response:
        body = {**BODY, "rollout_id": rollout_id, **fields}
        answer = await self.http.post("/rollout", json=body)
        if answer.status_code == 202:
            self.leases[answer.json()["rollout_id"]] = answer.json()["polling_lease_token"]
        return answer

    async def start(self, rollout_id: str, **fields: Any) -> str:
        answer = await self.post(rollout_id, **fields)
        assert answer.status_code == 202, answer.text
        return rollout_id

    async def poll(self, rollout_id: str, token: str | None = None) -> httpx.Response:
        headers = {POLLING_LEASE_HEADER: token or self.leases[rollout_id]}
        return await self.http.get(f"/rollout/{rollout_id}/result", headers=headers)

    async def result(self, rollout_id: str) -> dict[str, Any]:
        while True:
            answer: dict[str, Any] = (await self.poll(rollout_id)).json()
            if RolloutStatus(answer["status"]).is_final:
                return answer

    async def status(self, rollout_id: str) -> dict[str, Any]:
        answer = await self.http.get(f"/rollout/{rollout_id}/status")
        assert answer.status_code == 200, answer.text
        body: dict[str, Any] = answer.json()
        return body

    async def until(self, rollout_id: str, status: str) -> None:
        while (await self.status(rollout_id))["status"] != status:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@asynccontextmanager
async def serving(app: FastAPI, *, tidy: bool = True) -> AsyncGenerator[Client]:
    """Serve an app on loopback; unless it is not to be tidy, cancel what runs at the end."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
    task = asyncio.create_task(server.serve())
    while not server.started:
        assert not task.done(), task.result()
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", timeout=40, trust_env=False
        ) as http:
            yield Client(http)
            if tidy:  # shutting down would give what still runs its ten seconds
                await http.post("/rollout/cancel", json={"all": True})
    finally:
        server.should_exit = True
        await task
