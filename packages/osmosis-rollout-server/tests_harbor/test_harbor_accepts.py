"""Harbor's own models and validator accept every document that we write."""

import asyncio
import base64
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from chats import histories
from harbor.models.trajectories import Trajectory as HarborTrajectory
from harbor.utils.trajectory_validator import TrajectoryValidator
from hypothesis import given, settings

from osmosis_ai.rollout import ExecutionResult, RolloutErrorCategory, RolloutSample, RolloutStatus
from osmosis_ai.rollout.trajectory import Trajectory, TrajectoryReport, save_trajectory

USER = {"role": "user", "content": "2+2?"}
CALL = {"id": "x", "type": "function", "function": {"name": "calc", "arguments": '{"e": "2+2"}'}}
RESULT = {"role": "tool", "tool_call_id": "x", "content": "4"}
PNG = base64.b64encode(b"\x89PNG").decode()


def harbor_loads(history: list[Any], **options: Any) -> HarborTrajectory:
    """Save a history, let Harbor's validator look at the file, and load it in Harbor's model."""
    sample = RolloutSample(messages=[], trajectory_messages=history, reward=1.0)
    result = ExecutionResult(
        status=RolloutStatus.FAILURE,
        sample=sample,
        err_category=RolloutErrorCategory.TIMEOUT,
    )
    with tempfile.TemporaryDirectory() as root:
        saving = save_trajectory(rollout_id="r-1", result=result, artifact_root=root, **options)
        asyncio.run(saving)
        path = Path(root, "r-1", "trajectory.json")
        validator = TrajectoryValidator()
        assert validator.validate(path), validator.get_errors()
        return HarborTrajectory.model_validate_json(path.read_bytes())


@given(histories)
@settings(max_examples=200)
def test_whatever_the_history(history: list[dict[str, Any]]) -> None:
    """No history leads to a document that Harbor refuses, or reads in another way."""
    trajectory = harbor_loads(history)
    assert trajectory.final_metrics is not None
    assert trajectory.final_metrics.total_steps == len(trajectory.steps)


def test_tools_reasoning_usage_and_tokens() -> None:
    """What a training run needs comes through Harbor's models as it was."""
    turn = {
        "role": "assistant",
        "content": None,
        "reasoning_content": "add",
        "tool_calls": [CALL, CALL],
        "usage": {"prompt_tokens": 7, "completion_tokens": 2, "cost": 0.5},
        "model": "m",
        "created_at": 1_700_000_000_000,
        "prompt_token_ids": [1, 2],
        "token_ids": [3, 2**40],
        "logprobs": [-0.25, -1.5],
    }
    trajectory = harbor_loads([RESULT, USER, turn, RESULT, RESULT, USER])
    orphan, _, step, _ = trajectory.steps
    assert orphan.source == "system"
    assert step.metrics is not None
    assert step.metrics.completion_token_ids == [3, 2**40]
    assert step.metrics.logprobs == [-0.25, -1.5]
    assert step.observation is not None
    assert [r.source_call_id for r in step.observation.results] == ["x", "x_2"]


@pytest.mark.parametrize("calls", [1, 3])
def test_reports_matched_and_not(calls: int) -> None:
    """A report is laid over the steps or kept aside; Harbor takes both."""
    entry = {"prompt_tokens": 5, "logprobs": [None], "cost_usd": 1, "prompt_token_ids": [1]}
    answer = {"trajectory": {"samples": {"s": {"llm_call_metrics": [entry] * calls}}}}
    report = TrajectoryReport.from_answer(answer, rollout_id="r-1")
    assert report is not None
    trajectory = harbor_loads([USER, {"role": "assistant", "content": "4"}], report=report)
    assert trajectory.final_metrics is not None
    assert trajectory.final_metrics.total_prompt_tokens == 5 * calls


def test_images_and_sounds_lie_where_the_document_says() -> None:
    """Harbor's validator finds every file that a part refers to."""
    history = [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "what is it?"},
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
                {"type": "image_url", "image_url": {"url": "https://example.com/a.jpeg"}},
                {"type": "input_audio", "input_audio": {"data": PNG, "format": "wav"}},
            ],
        }
    ]
    trajectory = harbor_loads(history)
    assert trajectory.schema_version == "ATIF-v1.8"
    assert trajectory.has_multimodal_content()


@pytest.mark.parametrize("minor", range(9))
def test_both_read_every_version(minor: int) -> None:
    """Our models and Harbor's accept the same document in every version."""
    document = {
        "schema_version": f"ATIF-v1.{minor}",
        "agent": {"name": "a", "version": "1"},
        "steps": [{"step_id": 1, "source": "agent", "message": "hi", "reasoning_effort": 0.5}],
    }
    ours = Trajectory.model_validate_json(json.dumps(document))
    theirs = HarborTrajectory.model_validate(document)
    assert theirs.to_json_dict() == ours.model_dump(exclude_none=True)
