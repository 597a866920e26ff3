"""What is on the disk once a result was read."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Mapping
from pathlib import Path
from typing import Any, Self, override

import pytest

from osmosis_ai.rollout import (
    AgentWorkflow,
    AgentWorkflowConfig,
    AgentWorkflowContext,
    AgentWorkflowOutput,
    ExecutionOutcome,
    ExecutionRequest,
    ExecutionResult,
    LocalBackend,
    RolloutSample,
    RolloutStatus,
)
from osmosis_ai.rollout.backend import report_status
from osmosis_ai.rollout.server import _execution, _service, create_rollout_server
from osmosis_ai.rollout.threads import off_loop

from .harness import HeldBackend, ScriptedBackend, serving, succeeded

SERVER_FILES = ("trajectory.json", "trajectory.json.gz", "diagnostics.json")
ANSWER = {"role": "assistant", "content": "4"}


def document(root: Path, rollout_id: str = "r-1") -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((root / rollout_id / "trajectory.json").read_bytes())
    return loaded


async def test_the_trajectory_is_there_when_the_result_is_read(artifact_root: Path) -> None:
    async def execute(request: ExecutionRequest) -> ExecutionOutcome:
        return succeeded(*request.prompt, ANSWER, reward=0.25, remove_sample=True)

    async with serving(create_rollout_server(backend=ScriptedBackend(execute))) as client:
        await client.start("r-1", metadata={"row": 7}, extra_fields={"run": "a"})
        result = await client.result("r-1")
        saved = document(artifact_root)
    assert result["sample"]["reward"] is None
    facts = saved["extra"]["osmosis"]
    # The archived copy keeps the original.
    assert facts["reward"] == 0.25
    assert facts["status"] == "success"
    assert facts["label"] == "4"
    assert facts["request_metadata"] == {"row": 7}
    assert facts["request_extra_fields"] == {"run": "a"}
    assert [step["source"] for step in saved["steps"]] == ["user", "agent"]


async def test_the_latest_sample_and_diagnostics_are_kept(artifact_root: Path) -> None:
    async def execute(request: ExecutionRequest) -> ExecutionOutcome:
        workflow = ExecutionResult(
            status=RolloutStatus.SUCCESS,
            sample=RolloutSample(messages=[ANSWER]),
            extra_fields={"phase": "workflow"},
        )
        grader = ExecutionResult(status=RolloutStatus.FAILURE, err_message="the judge is down")
        return ExecutionOutcome(workflow=workflow, grader=grader)

    async with serving(create_rollout_server(backend=ScriptedBackend(execute))) as client:
        await client.start("r-1")
        await client.result("r-1")
    assert document(artifact_root)["extra"]["osmosis"]["status"] == "failure"
    diagnostics = json.loads((artifact_root / "r-1" / "diagnostics.json").read_bytes())
    assert diagnostics == {"phase": "workflow"}


@pytest.mark.parametrize("how", ["cancelled", "crashed"])
async def test_what_was_reported_before_the_end_is_kept_without_a_reward(
    artifact_root: Path, how: str
) -> None:
    async def execute(request: ExecutionRequest) -> ExecutionOutcome:
        sample = RolloutSample(messages=[ANSWER])
        report_status(
            RolloutStatus.GRADING, ExecutionResult(status=RolloutStatus.SUCCESS, sample=sample)
        )
        if how == "crashed":
            raise RuntimeError
        await asyncio.sleep(60)
        return succeeded()

    async with serving(create_rollout_server(backend=ScriptedBackend(execute))) as client:
        await client.start("r-1")
        await client.http.post("/rollout/cancel", json={"ids": ["r-1"]})
        assert (await client.result("r-1"))["status"] != "success"
    facts = document(artifact_root)["extra"]["osmosis"]
    assert facts["status"] == ("cancelled" if how == "cancelled" else "failure")
    assert "reward" not in facts


async def test_a_dropped_result_leaves_its_transcript_and_no_reward(artifact_root: Path) -> None:
    async def stubborn(request: ExecutionRequest) -> ExecutionOutcome:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        return succeeded(ANSWER, reward=1.0)

    async with serving(create_rollout_server(backend=ScriptedBackend(stubborn))) as client:
        await client.start("r-1")
        await client.http.post("/rollout/cancel", json={"all": True})
    facts = document(artifact_root)["extra"]["osmosis"]
    assert facts["status"] == "cancelled"
    assert "reward" not in facts


async def test_a_root_that_cannot_be_written_costs_no_result(
    artifact_root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    artifact_root.symlink_to("/proc/nowhere")  # noqa: ASYNC240

    async def execute(request: ExecutionRequest) -> ExecutionOutcome:
        return succeeded(ANSWER, reward=1.0)

    async with serving(create_rollout_server(backend=ScriptedBackend(execute))) as client:
        await client.start("r-1")
        result = await client.result("r-1")
    assert result["sample"]["reward"] == 1.0
    assert "The trajectory of rollout r-1 was not saved" in caplog.text


@pytest.fixture
async def release() -> AsyncGenerator[threading.Event]:
    """Let every thread for files hang, as on a disk that does not answer, until it is set."""
    release = threading.Event()
    hanging = [off_loop(release.wait, 50) for _ in range(20)]  # more than there are threads
    yield release
    release.set()
    await asyncio.gather(*hanging)


@pytest.mark.parametrize("length", [1, 20_000])
async def test_a_disk_that_hangs_holds_up_no_result(
    length: int, release: threading.Event, artifact_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long it is, it is told without its files after a while; meanwhile it has ended, and
    stays as it is."""
    monkeypatch.setattr(_execution, "ARCHIVE_PATIENCE_SEC", 1.0)
    executed = asyncio.Event()

    async def execute(request: ExecutionRequest) -> ExecutionOutcome:
        executed.set()
        return succeeded(*[ANSWER] * length, reward=1.0)

    async with serving(create_rollout_server(backend=ScriptedBackend(execute))) as client:
        rollout_id = (await client.post()).json()["rollout_id"]
        await executed.wait()
        answer = await client.http.post("/rollout/cancel", json={"ids": [rollout_id]})
        assert answer.json()["dispositions"] == {rollout_id: "not_found"}
        result = await client.result(rollout_id)
        assert not artifact_root.exists()  # noqa: ASYNC240
        release.set()
        assert await client.result(rollout_id) == result
    assert result["sample"]["reward"] == 1.0
    assert len(result["sample"]["messages"]) == length
    assert document(artifact_root, rollout_id)["extra"]["osmosis"]["reward"] == 1.0


async def test_a_disk_that_hangs_does_not_hold_up_the_exit(
    release: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_service, "DRAIN_SEC", 0.2)
    monkeypatch.setattr(_service, "UNWIND_SEC", 0.2)
    backend = HeldBackend(succeeded(ANSWER, reward=1.0))
    backend.release.set()
    async with asyncio.timeout(40):
        async with serving(create_rollout_server(backend=backend), tidy=False) as client:
            assert (await client.post()).status_code == 202
    assert not release.is_set()


def test_a_full_disk_costs_no_result_and_the_log_says_what_was_lost(artifact_root: Path) -> None:
    """A limit on the size of files makes real writes fail, as a full disk does."""
    script = """
import resource, signal
from fastapi.testclient import TestClient
from osmosis_ai.rollout import AgentWorkflow, Grader, LocalBackend
from osmosis_ai.rollout.server import create_rollout_server

class Answer(AgentWorkflow):
    async def run(self, ctx):
        return [{"role": "assistant", "content": "x" * 1000}]

class Reward(Grader):
    async def grade(self, ctx):
        ctx.set_reward(1)

body = {"rollout_id": "r-1", "initial_messages": [], "label": "4",
        "chat_completions_url": "http://x"}
app = create_rollout_server(backend=LocalBackend(workflow=Answer, grader=Reward))
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
with TestClient(app) as http:
    token = http.post("/rollout", json=body).json()["polling_lease_token"]
    status = "queued"
    while status in {"queued", "running", "grading"}:
        answer = http.get("/rollout/r-1/result", headers={"X-Osmosis-Rollout-Lease": token})
        status = answer.json()["status"]
    print(status, answer.json()["sample"]["reward"])
"""
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, timeout=50
    )
    assert ended.stdout.split() == ["success", "1.0"], ended.stderr
    assert "The trajectory of rollout r-1 was not saved" in ended.stderr
    assert "File too large" in ended.stderr
    assert os.listdir(artifact_root / "r-1") == ["artifacts"]


async def test_the_backend_may_name_the_root(tmp_path: Path, artifact_root: Path) -> None:
    class Elsewhere(ScriptedBackend):
        @property
        def artifact_root(self) -> Path:
            return tmp_path / "elsewhere"

    async def execute(request: ExecutionRequest) -> ExecutionOutcome:
        return succeeded(ANSWER)

    async with serving(create_rollout_server(backend=Elsewhere(execute))) as client:
        await client.start("r-1")
        await client.result("r-1")
    assert document(tmp_path / "elsewhere")["session_id"] == "r-1"
    assert not artifact_root.exists()  # noqa: ASYNC240


async def test_an_id_that_has_files_from_an_earlier_process_sets_them_aside(
    artifact_root: Path,
) -> None:
    (artifact_root / "r-1").mkdir(parents=True)
    (artifact_root / "r-1" / "old.txt").write_text("old")

    async def execute(request: ExecutionRequest) -> ExecutionOutcome:
        return succeeded(ANSWER)

    async with serving(create_rollout_server(backend=ScriptedBackend(execute))) as client:
        await client.start("r-1")
        await client.result("r-1")
    assert (artifact_root / "r-1" / "previous-1" / "old.txt").read_text() == "old"
    assert document(artifact_root)["session_id"] == "r-1"


def forge_file(path: Path) -> None:
    path.write_text('{"reward": 1}')


def forge_link(path: Path) -> None:
    path.symlink_to("/etc/passwd")


FORGERS: list[Callable[[Path], None]] = [forge_file, forge_link, Path.mkdir, os.mkfifo]


@pytest.mark.parametrize("forge", FORGERS, ids=["file", "link", "directory", "pipe"])
async def test_b13_b14_what_a_failed_workflow_forged_does_not_pass_for_the_servers(
    forge: Callable[[Path], None], artifact_root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Forging(AgentWorkflow[AgentWorkflowConfig]):
        async def run(self, ctx: AgentWorkflowContext[AgentWorkflowConfig]) -> AgentWorkflowOutput:
            assert ctx.artifacts_dir is not None
            for name in SERVER_FILES:
                forge(ctx.artifacts_dir.parent / name)
            raise RuntimeError

    async with serving(create_rollout_server(backend=LocalBackend(workflow=Forging))) as client:
        await client.start("r-1")
        assert (await client.result("r-1"))["status"] == "failure"
        found = set(os.listdir(artifact_root / "r-1"))
    assert found == {"artifacts", *(f"{name}.displaced-1" for name in SERVER_FILES)}
    for name in SERVER_FILES:
        assert f"Rollout r-1: {name} was not written by the server" in caplog.text


async def test_b14_a_sample_that_asks_for_no_trajectory_has_none(artifact_root: Path) -> None:
    async def execute(request: ExecutionRequest) -> ExecutionOutcome:
        (artifact_root / "r-1").mkdir(parents=True)
        for name in SERVER_FILES:
            forge_file(artifact_root / "r-1" / name)
        outcome = succeeded(ANSWER, trajectory_messages=None)
        outcome.workflow.extra_fields = {"host": "a"}
        return outcome

    async with serving(create_rollout_server(backend=ScriptedBackend(execute))) as client:
        await client.start("r-1")
        await client.result("r-1")
    displaced = {f"{name}.displaced-1" for name in SERVER_FILES}
    assert set(os.listdir(artifact_root / "r-1")) == {"diagnostics.json", *displaced}
    assert json.loads((artifact_root / "r-1" / "diagnostics.json").read_bytes()) == {"host": "a"}


async def test_a_rollout_without_files_leaves_no_folder(artifact_root: Path) -> None:
    async def execute(request: ExecutionRequest) -> ExecutionOutcome:
        return ExecutionOutcome(workflow=ExecutionResult(status=RolloutStatus.FAILURE))

    async with serving(create_rollout_server(backend=ScriptedBackend(execute))) as client:
        await client.start("r-1")
        await client.result("r-1")
    assert not artifact_root.exists()  # noqa: ASYNC240


class Unsaveable(ExecutionResult):
    @override
    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        raise RuntimeError


async def test_a_saving_that_breaks_costs_no_result(caplog: pytest.LogCaptureFixture) -> None:
    sample = RolloutSample(reward=1.0)
    workflow = Unsaveable(status=RolloutStatus.SUCCESS, sample=sample, extra_fields={"a": 1})
    grader = Unsaveable(status=RolloutStatus.SUCCESS, sample=sample)
    backend = HeldBackend(ExecutionOutcome(workflow=workflow, grader=grader))
    backend.release.set()
    async with serving(create_rollout_server(backend=backend)) as client:
        await client.start("r-1")
        assert (await client.result("r-1"))["sample"]["reward"] == 1.0
        await client.until("r-1", "success")
    assert any("the server failed" in record.getMessage() for record in caplog.records)
