"""Reading documents: every version loads, and errors name the step and the field."""

import copy
import json
from typing import Any

import pytest
from pydantic import ValidationError

from osmosis_ai.rollout.trajectory import AudioSource, ContentPart, Trajectory

CALL = {"tool_call_id": "c", "function_name": "f", "arguments": {}}
SUBAGENT = {
    "schema_version": "ATIF-v1.7",
    "trajectory_id": "sub-1",
    "agent": {"name": "helper", "version": "2"},
    "steps": [{"step_id": 1, "source": "agent", "message": "done"}],
}
# One image in a message, another one in a result; linked and unlinked results; a reference to an
# embedded subagent and one to a file; no session id.
DOCUMENT: dict[str, Any] = {
    "schema_version": "ATIF-v1.7",
    "trajectory_id": "t-1",
    "agent": {"name": "a", "version": "1", "tool_definitions": [{"type": "function"}]},
    "steps": [
        {"step_id": 1, "source": "system", "message": "Check it.", "timestamp": "2026-01-01T00:00"},
        {
            "step_id": 2,
            "source": "user",
            "message": [
                {"type": "text", "text": "This one."},
                {"type": "image", "source": {"media_type": "image/png", "path": "images/a.png"}},
            ],
        },
        {
            "step_id": 3,
            "source": "agent",
            "message": "",
            "reasoning_effort": "high",
            "tool_calls": [CALL],
            "metrics": {"prompt_token_ids": [1, 2**62], "logprobs": [-1, -0.5], "cost_usd": 0},
            "observation": {
                "results": [
                    {
                        "source_call_id": "c",
                        "content": [
                            {"type": "text", "text": "ok"},
                            {
                                "type": "image",
                                "source": {"media_type": "image/gif", "path": "b.gif"},
                            },
                        ],
                    },
                    {"content": "reset"},
                    {"subagent_trajectory_ref": [{"trajectory_id": "sub-1"}]},
                    {"subagent_trajectory_ref": [{"trajectory_path": "s.json", "session_id": "s"}]},
                ]
            },
        },
    ],
    "subagent_trajectories": [SUBAGENT],
}


def changed(path: str, value: Any) -> dict[str, Any]:
    """Return the document with one value replaced or added."""
    document = copy.deepcopy(DOCUMENT)
    *parents, last = [int(key) if key.isdigit() else key for key in path.split(".")]
    inner: Any = document
    for key in parents:
        inner = inner[key]
    inner[last] = value
    return document


@pytest.mark.parametrize("minor", range(9))
def test_every_version_loads(minor: int) -> None:
    """A document of any version loads and comes out as it went in."""
    document = changed("schema_version", f"ATIF-v1.{minor}")
    trajectory = Trajectory.model_validate_json(json.dumps(document))
    assert trajectory.model_dump(exclude_none=True) == document


AUDIO = [{"type": "audio", "source": {"media_type": "audio/wav", "path": "a"}, "text": "x"}]
WRONG = {
    "steps.2.tool_calls.0.arguments": ["fast"],
    "steps.2.tool_calls.0.surprise": 1,
    "steps.2.metrics.logprobs": [None],
    "steps.2.metrics.cost_usd": float("inf"),
    "steps.2.metrics.prompt_tokens": "7",
    "steps.1.message": None,
    "steps.1.message.1.source.media_type": "image/bmp",
    "steps.1.message.0": AUDIO[0],
    "steps.1.timestamp": "yesterday",
    "steps.1.source": "tool",
    "steps.1.step_id": 0,
    "steps.2.llm_call_count": -1,
    "schema_version": "ATIF-v2.0",
    "agent.version": 3,
    "steps": [],
}


def keys_of(path: str) -> set[str]:
    """Return the keys of a path; a field of several types puts the type's name between them."""
    return set(path.split("."))


@pytest.mark.parametrize("path", WRONG)
def test_errors_name_the_step_and_the_field(path: str) -> None:
    """F05: what does not fit is refused where it stands, and the value is not repeated."""
    with pytest.raises(ValidationError) as caught:
        Trajectory.model_validate(changed(path, WRONG[path]))
    places = [error["loc"] for error in caught.value.errors()]
    assert any(keys_of(path) <= set(map(str, place)) for place in places)
    assert "input_value" not in str(caught.value)


BROKEN_RULES = {
    "steps.1.step_id": (5, "steps.1.step_id must be 2"),
    "steps.1.model_name": ("m", "steps.1\n  Value error, model_name belongs on agent steps only"),
    "steps.1.reasoning_effort": (1.0, "reasoning_effort belongs on agent steps only"),
    "steps.1.reasoning_content": ("r", "reasoning_content belongs on agent steps only"),
    "steps.1.tool_calls": ([CALL], "tool_calls belongs on agent steps only"),
    "steps.0.metrics": ({}, "metrics belongs on agent steps only"),
    "steps.2.llm_call_count": (0, "metrics cannot be there when llm_call_count is 0"),
    "steps.2.tool_calls": ([CALL, CALL], "tool_calls.1.tool_call_id must be unique"),
    "steps.2.observation.results.1.source_call_id": ("z", "results.1.source_call_id names no"),
    "steps.0.observation": ({"results": [{"source_call_id": "c"}]}, "results.0.source_call_id"),
    "steps.2.observation.results.2.subagent_trajectory_ref": (
        [{"session_id": "s"}],
        "must have a trajectory_id or a trajectory_path",
    ),
    "subagent_trajectories": ([SUBAGENT, SUBAGENT], "subagent_trajectories.1.trajectory_id"),
    "subagent_trajectories.0.trajectory_id": (None, "subagent_trajectories.0.trajectory_id"),
}


@pytest.mark.parametrize("path", BROKEN_RULES)
def test_rules_between_fields(path: str) -> None:
    """B53: ids count, references resolve, and fields stand on the steps that they belong to."""
    value, said = BROKEN_RULES[path]
    with pytest.raises(ValidationError) as caught:
        Trajectory.model_validate(changed(path, value))
    assert said in str(caught.value)


def test_audio_types_are_normalised() -> None:
    """Usual spellings are read as the registered one."""
    assert AudioSource(media_type="audio/MP3", path="a").media_type == "audio/mpeg"  # type: ignore[arg-type]
    with pytest.raises(ValidationError):
        AudioSource(media_type="audio/midi", path="a")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "text"},
        {"type": "text", "text": "x", "source": {"media_type": "image/png", "path": "a"}},
        {"type": "image", "text": "x"},
        {"type": "image", "source": {"media_type": "audio/wav", "path": "a"}},
        {"type": "audio", "source": {"media_type": "image/png", "path": "a"}},
    ],
)
def test_a_part_has_exactly_what_fits_its_type(part: dict[str, Any]) -> None:
    """A part of a type has its field and no other."""
    with pytest.raises(ValidationError, match="a part of type"):
        ContentPart.model_validate(part)
