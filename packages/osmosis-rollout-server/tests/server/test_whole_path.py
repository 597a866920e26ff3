"""From the POST to the files: a real workflow, a real policy endpoint, a real server."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from osmosis_ai.rollout import (
    AgentWorkflow,
    AgentWorkflowConfig,
    AgentWorkflowContext,
    AgentWorkflowOutput,
    ConcurrencyConfig,
    Grader,
    GraderContext,
    LocalBackend,
)
from osmosis_ai.rollout.policy import PolicyClient
from osmosis_ai.rollout.server import create_rollout_server
from osmosis_ai.rollout.testing import Gate, ScriptedPolicy, error_reply, reply, stream_reply

from .harness import serving


class Asking(AgentWorkflow[AgentWorkflowConfig]):
    """Asks the policy once, and writes where it should not."""

    async def run(self, ctx: AgentWorkflowContext[AgentWorkflowConfig]) -> AgentWorkflowOutput:
        answer = await PolicyClient().complete(ctx.prompt)
        if ctx.artifacts_dir is not None:
            (ctx.artifacts_dir / "run.log").write_text("started\n")
            (ctx.artifacts_dir.parent / "trajectory.json").write_text("mine")
        return AgentWorkflowOutput(messages=[*ctx.prompt, answer.annotated], metrics={"reward": 1})


class Comparing(Grader):
    """Rewards an answer that is the label."""

    async def grade(self, ctx: GraderContext) -> None:
        assert ctx.sample is not None
        if ctx.metadata == {"grader": "fails"}:
            raise RuntimeError
        if ctx.metadata == {"grader": "exits"}:
            raise SystemExit(1)
        ctx.set_reward(ctx.sample.messages[-1]["content"] == ctx.label)
        ctx.sample.metrics["loss"] = float("nan")


def backend(**options: Any) -> LocalBackend:
    config = AgentWorkflowConfig(name="asking", concurrency=ConcurrencyConfig(**options))
    return LocalBackend(
        workflow=Asking, workflow_config=config, grader=Comparing, max_queue_depth=1
    )


async def test_b14_b22_a_rollout_from_request_to_files(artifact_root: Path) -> None:
    with ScriptedPolicy(reply("4")) as policy:
        async with serving(create_rollout_server(backend=backend())) as client:
            await client.start("r-1", chat_completions_url=policy.url, llm_api_key="the-key")
            result = await client.result("r-1")
            status = await client.status("r-1")
    assert policy.requests[0].headers["authorization"] == "Bearer the-key"
    assert status == {
        "rollout_id": "r-1",
        "status": "success",
        "reward": 1.0,
        "err_message": None,
    }
    assert result["sample"]["reward"] == 1.0
    assert result["sample"]["messages"][-1]["content"] == "4"
    assert result["sample"]["metrics"] == {"reward": 1.0}
    saved = json.loads((artifact_root / "r-1" / "trajectory.json").read_bytes())
    assert saved["steps"][-1]["message"] == "4"
    assert saved["extra"]["osmosis"]["reward"] == 1.0
    assert (artifact_root / "r-1" / "artifacts" / "run.log").read_text() == "started\n"


@pytest.mark.parametrize(
    ("fields", "category"),
    [
        ({"chat_completions_url": "http://127.0.0.1:1/v1"}, "http_error"),
        ({"metadata": {"grader": "fails"}}, "agent_error"),
        ({"metadata": {"grader": "exits"}}, "agent_error"),
        ({"agent_timeout_sec": 0}, "timeout"),
        ({"grader_timeout_sec": 0}, "timeout"),
    ],
    ids=["no endpoint", "grader raises", "grader exits", "late workflow", "late grader"],
)
async def test_b15_no_failure_is_a_reward_of_0(fields: dict[str, Any], category: str) -> None:
    with ScriptedPolicy(respond=lambda _: reply("4")) as policy:
        async with serving(create_rollout_server(backend=backend())) as client:
            await client.start("r-1", **{"chat_completions_url": policy.url, **fields})
            result = await client.result("r-1")
            status = await client.status("r-1")
    assert result["status"] == "failure"
    assert result["err_category"] == category
    assert result["err_message"]
    assert status["reward"] is None
    assert result.get("sample", {}).get("reward") is None


async def test_a_policy_that_is_down_is_an_http_error() -> None:
    with ScriptedPolicy(respond=lambda _: error_reply(500, "out of memory")) as policy:
        async with serving(create_rollout_server(backend=backend())) as client:
            await client.start("r-1", chat_completions_url=policy.url)
            result = await client.result("r-1")
    assert result["err_category"] == "http_error"
    assert "out of memory" in result["err_message"]


async def test_a_full_line_is_429_and_health_counts() -> None:
    gate = Gate()
    answer = stream_reply(gate)
    with ScriptedPolicy(respond=lambda _: answer) as policy:
        async with serving(create_rollout_server(backend=backend(max_concurrent=1))) as client:
            url = {"chat_completions_url": policy.url}
            answers = await asyncio.gather(*(client.post(f"r-{n}", **url) for n in range(5)))
            assert sorted(answer.status_code for answer in answers) == [202, 202, 429, 429, 429]
            await asyncio.to_thread(gate.wait)
            health = (await client.http.get("/health")).json()
            assert health["concurrency"] == {"max_concurrent": 1, "queued": 1, "running": 1}
            assert health["lifecycle"]["active_rollouts"] == 2
            await client.http.post("/rollout/cancel", json={"all": True})
            gate.open()


async def test_without_a_grade_there_is_no_reward() -> None:
    with ScriptedPolicy(reply("4")) as policy:
        async with serving(create_rollout_server(backend=backend())) as client:
            await client.start("r-1", chat_completions_url=policy.url, grade=False)
            result = await client.result("r-1")
    assert result["status"] == "success"
    assert result["sample"]["reward"] is None
    assert result["sample"]["label"] == "4"


async def test_no_secret_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    with ScriptedPolicy(reply("4"), error_reply(401, "who are you?")) as policy:
        async with serving(create_rollout_server(backend=backend())) as client:
            for number in range(2):
                await client.start(
                    f"r-{number}",
                    chat_completions_url=f"{policy.url}/tenant-sek-ret",
                    llm_api_key="sek-ret",
                    metadata={"a": "sek-ret"},
                )
                await client.result(f"r-{number}")
    ours = [record.getMessage() for record in caplog.records if record.name.startswith("osmosis")]
    assert not [line for line in ours if "sek-ret" in line]
