"""What `save_trajectory` leaves on disk, and what it never does."""

import json
from pathlib import Path
from typing import Any

import pytest

from osmosis_ai.rollout import ExecutionResult, RolloutSample, RolloutStatus
from osmosis_ai.rollout.trajectory import Trajectory, save_trajectory

QUESTION = {"role": "user", "content": "2+2?"}
ANSWER = {"role": "assistant", "content": "4"}
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def finished(*messages: Any, **sample: Any) -> ExecutionResult:
    return ExecutionResult(
        status=RolloutStatus.SUCCESS, sample=RolloutSample(messages=messages, **sample)
    )


def load(path: Path) -> Any:
    return json.loads(path.read_bytes())


async def test_saves_the_document_and_the_diagnostics(tmp_path: Path) -> None:
    """Both files lie in the rollout's folder; the document is one that readers accept."""
    result = finished(QUESTION, ANSWER, reward=1.0, label="4", metrics={"n": 1})
    result.extra_fields = {"host": "a"}
    await save_trajectory(
        rollout_id="r-1",
        result=result,
        request_label="5",
        request_metadata={"row": 3},
        request_extra_fields={"epoch": 1},
        artifact_root=tmp_path,
    )
    document = (tmp_path / "r-1" / "trajectory.json").read_bytes()
    trajectory = Trajectory.model_validate_json(document)
    assert trajectory.session_id == trajectory.trajectory_id == "r-1"
    assert trajectory.agent.name == "osmosis-rollout-sdk"
    assert [step.message for step in trajectory.steps] == ["2+2?", "4"]
    assert trajectory.extra == {
        "osmosis": {
            "rollout_id": "r-1",
            "label": "4",
            "reward": 1.0,
            "sample_metrics": {"n": 1},
            "request_metadata": {"row": 3},
            "request_extra_fields": {"epoch": 1},
            "status": "success",
        }
    }
    assert load(tmp_path / "r-1" / "diagnostics.json") == {"host": "a"}
