"""Workflows that do what they should not, and the rollouts beside them."""

import asyncio
import json
import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from osmosis_ai.rollout import (
    AgentWorkflow,
    AgentWorkflowConfig,
    AgentWorkflowContext,
    Grader,
    GraderContext,
    LocalBackend,
)
from osmosis_ai.rollout.server import create_rollout_server

from .harness import serving


def put_links_and_pipes(artifacts: Path, outside: Path) -> None:
    (artifacts / "file").symlink_to(outside / "secret")
    (artifacts / "hop").symlink_to(outside)
    (artifacts / "loop").symlink_to(artifacts / "loop")
    os.link(outside / "secret", artifacts / "hard")
    os.mkfifo(artifacts / "pipe")


def replace_artifacts(artifacts: Path, outside: Path) -> None:
    shutil.rmtree(artifacts)
    artifacts.symlink_to(outside)


def replace_folder(artifacts: Path, outside: Path) -> None:
    shutil.rmtree(artifacts.parent)
    artifacts.parent.symlink_to(outside)


def link_the_document(artifacts: Path, outside: Path) -> None:
    (artifacts.parent / "trajectory.json").symlink_to(outside / "secret")


ON_DISK: dict[str, Callable[[Path, Path], None]] = {
    "links and pipes": put_links_and_pipes,
    "artifacts replaced": replace_artifacts,
    "folder replaced": replace_folder,
    "document linked": link_the_document,
}


class Mixed(AgentWorkflow[AgentWorkflowConfig]):
    """Is honest, or does what its prompt names."""

    outside: Path
    may_end: asyncio.Event
    leaked: list[asyncio.Task[Any]]

    async def run(self, ctx: AgentWorkflowContext[AgentWorkflowConfig]) -> list[dict[str, Any]]:
        kind = str(ctx.prompt[0]["content"])
        assert ctx.artifacts_dir is not None
        if kind in ON_DISK:
            ON_DISK[kind](ctx.artifacts_dir, self.outside)
        elif kind == "blocking":
            time.sleep(0.5)  # noqa: ASYNC251 - the fault that this test is about
        elif kind == "leaking":
            self.leaked += [asyncio.create_task(asyncio.sleep(1000)) for _ in range(10)]
        elif kind == "swallowing":
            while not self.may_end.is_set():
                with suppress(asyncio.CancelledError):
                    await self.may_end.wait()
        else:
            await asyncio.sleep(0.2)
            (ctx.artifacts_dir / "notes").write_text(kind)
        return [*ctx.prompt, {"role": "assistant", "content": "4"}]


class Reward(Grader):
    """Gives everybody the same."""

    async def grade(self, ctx: GraderContext) -> None:
        ctx.set_reward(1.0)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A directory of the host's, which nothing may be written to."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret").write_text("secret")
    return folder


async def test_b10_b13_b14_hostile_workflows_harm_nobody_else(
    artifact_root: Path, outside: Path
) -> None:
    """Each ends as it deserves, and its document lies in its own folder like the others'."""
    Mixed.outside, Mixed.may_end, Mixed.leaked = outside, asyncio.Event(), []
    kinds = [*ON_DISK, "blocking", "leaking", "swallowing"]
    rollouts = {kind.replace(" ", "-"): kind for kind in kinds}
    rollouts |= {f"honest-{number}": f"honest {number}" for number in range(10)}
    app = create_rollout_server(backend=LocalBackend(workflow=Mixed, grader=Reward))
    async with serving(app) as client:
        for rollout_id, kind in rollouts.items():
            budget = {"agent_timeout_sec": 3.0} if kind == "swallowing" else {}
            prompt = [{"role": "user", "content": kind}]
            await client.start(rollout_id, initial_messages=prompt, **budget)
        results = {rollout_id: await client.result(rollout_id) for rollout_id in rollouts}
        Mixed.may_end.set()
    late = results.pop("swallowing")
    assert (late["status"], late["err_category"]) == ("failure", "timeout")
    assert {result["sample"]["reward"] for result in results.values()} == {1.0}
    for rollout_id in results:
        folder = artifact_root / rollout_id
        assert folder.resolve() == folder
        assert not (folder / "trajectory.json").is_symlink()
        document = json.loads((folder / "trajectory.json").read_bytes())
        assert document["steps"][0]["message"] == rollouts[rollout_id]
    for number in range(10):
        notes = artifact_root / f"honest-{number}" / "artifacts" / "notes"
        assert notes.read_text() == f"honest {number}"
    assert os.listdir(outside) == ["secret"]
    assert (outside / "secret").read_text() == "secret"
    assert [task.cancelled() for task in Mixed.leaked] == [True] * 10
