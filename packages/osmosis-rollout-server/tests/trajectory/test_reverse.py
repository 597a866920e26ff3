"""Documents, ours and others', as files and as chat messages again."""

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from chats import convert
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from osmosis_ai.rollout import ExecutionResult, RolloutSample, RolloutStatus
from osmosis_ai.rollout.trajectory import (
    Trajectory,
    convert_trajectory_to_messages,
    read_trajectory,
    save_trajectory,
)

# Other projects' documents; see the NOTICE beside them.
DATA = Path(__file__).parents[1] / "data"
PNG = base64.b64encode(b"\x89PNG").decode()

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
names = st.text("abcdefgh_", min_size=1, max_size=8)
# JSON whose numbers every reader keeps.
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
arguments = st.dictionaries(words, json_values, max_size=3).map(json.dumps) | words.filter(
    lambda text: bool(text)
)


@st.composite
def turns(draw: st.DrawFn) -> list[dict[str, Any]]:
    """One assistant turn with the results of its calls; ids may be those of earlier turns."""
    functions = draw(st.lists(st.tuples(names, arguments), max_size=3))
    calls = [
        {"id": f"call_{n}", "type": "function", "function": {"name": name, "arguments": text}}
        for n, (name, text) in enumerate(functions)
    ]
    turn: dict[str, Any] = {"role": "assistant", "content": draw(words)}
    if draw(st.booleans()):
        turn["reasoning_content"] = draw(words)
    if calls:
        turn["tool_calls"] = calls
        turn["content"] = turn["content"] or None
    results = [{"role": "tool", "tool_call_id": c["id"], "content": draw(words)} for c in calls]
    return [turn, *draw(st.permutations(results))]


said = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "developer", "user", "critic"]), "content": words},
    optional={"name": names},
).map(lambda message: [message])
chats = st.lists(said | turns(), min_size=1, max_size=6).map(
    lambda blocks: [message for block in blocks for message in block]
)


def with_parsed_arguments(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return messages whose arguments are values, however their JSON is spelled."""
    copies: list[dict[str, Any]] = json.loads(json.dumps(messages))
    for function in (c["function"] for m in copies for c in m.get("tool_calls", ())):
        try:
            parsed = json.loads(function["arguments"])
        except ValueError:
            continue
        function["arguments"] = parsed if isinstance(parsed, dict) else function["arguments"]
    return copies


@given(chats)
def test_there_and_back(messages: list[dict[str, Any]]) -> None:
    """Roles, texts, calls, results and reasoning survive."""
    back = convert_trajectory_to_messages(convert(*messages))
    assert with_parsed_arguments(back) == with_parsed_arguments(messages)


@given(chats)
def test_back_and_there(messages: list[dict[str, Any]]) -> None:
    """The messages of a document make the same document again."""
    trajectory = convert(*messages)
    assert convert(*convert_trajectory_to_messages(trajectory)) == trajectory


def test_what_is_known_of_a_turns_making() -> None:
    """Usage, tokens, model and time come back under the keys that archives understand."""
    turn = {
        "role": "assistant",
        "content": "4",
        "model": "m",
        "created_at": "2026-01-01T00:00:00Z",
        "usage": {
            "prompt_tokens": 7,
            "completion_tokens": 1,
            "prompt_tokens_details": {"cached_tokens": 0},
            "cost": 0.5,
        },
        "prompt_token_ids": [1, 2],
        "token_ids": [3],
        "logprobs": [-0.5],
    }
    question = {"role": "user", "content": "2+2?"}
    trajectory = convert(question, turn)
    back = convert_trajectory_to_messages(trajectory)
    assert back == [question, turn]
    assert convert(*back) == trajectory


def test_results_without_a_call() -> None:
    """A result that came first, one with an unknown id, and a legacy function's."""
    messages = [
        {"role": "tool", "tool_call_id": "a", "content": "early"},
        {"role": "assistant", "content": "hm", "refusal": "no"},
        {"role": "tool", "tool_call_id": "b", "content": "unknown"},
        {"role": "function", "name": "f", "content": "legacy"},
    ]
    assert convert_trajectory_to_messages(convert(*messages)) == messages


async def test_images_and_sounds_come_back(tmp_path: Path) -> None:
    """With the document's folder they are part of the messages again; without, they are named."""
    parts = [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
        {"type": "input_audio", "input_audio": {"data": PNG, "format": "wav"}},
    ]
    message = {"role": "user", "content": parts}
    result = ExecutionResult(status=RolloutStatus.SUCCESS, sample=RolloutSample(messages=[message]))
    await save_trajectory(rollout_id="r-1", result=result, artifact_root=tmp_path)
    trajectory = read_trajectory(tmp_path / "r-1" / "trajectory.json")
    assert convert_trajectory_to_messages(trajectory, folder=tmp_path / "r-1") == [message]
    (named,) = convert_trajectory_to_messages(trajectory)
    assert named["content"][1]["image_url"]["url"].startswith("images/")
    assert named["content"][3]["text"].startswith("<audio/wav: audio/")


@pytest.mark.parametrize("path", ["/etc/hostname", "../secret", "link.png"])
def test_b13_a_document_reads_nothing_outside_of_its_folder(tmp_path: Path, path: str) -> None:
    """Whatever a foreign document refers to, only files of its folder get into messages."""
    folder = tmp_path / "document"
    folder.mkdir()
    (tmp_path / "secret").write_bytes(b"secret")
    (folder / "link.png").symlink_to(tmp_path / "secret")
    part = {"type": "image", "source": {"media_type": "image/png", "path": path}}
    document = {
        "schema_version": "ATIF-v1.6",
        "agent": {"name": "a", "version": "1"},
        "steps": [{"step_id": 1, "source": "user", "message": [part]}],
    }
    trajectory = Trajectory.model_validate(document)
    with pytest.raises((OSError, ValueError)):
        convert_trajectory_to_messages(trajectory, folder=folder)


def test_f05_a_refusal_names_the_step_and_the_field() -> None:
    """Arguments that are a list are no ATIF; what the document says is not repeated."""
    with pytest.raises(ValidationError) as refusal:
        read_trajectory(DATA / "atif_cleanup.json")
    (error,) = refusal.value.errors()
    assert error["loc"] == ("steps", 2, "tool_calls", 0, "arguments")
    assert "fast" not in str(refusal.value)


def test_f05_its_subagent_and_its_results_otherwise() -> None:
    """With arguments in our own form, all of the document is there."""
    document = json.loads((DATA / "atif_cleanup.json").read_bytes())
    document["steps"][2]["tool_calls"][0]["arguments"] = {"_raw": '["fast"]'}
    trajectory = Trajectory.model_validate(document)
    messages = convert_trajectory_to_messages(trajectory)
    assert [m["role"] for m in messages] == [
        "system",
        "user",
        *["assistant", "tool", "tool", "assistant"],
    ]
    assert messages[2]["tool_calls"][0]["function"] == {"name": "check", "arguments": '["fast"]'}
    linked, unlinked = messages[3:5]
    assert linked["tool_call_id"] == "call-check"
    assert linked["content"][1]["image_url"] == {"url": "images/result.png"}
    assert unlinked == {"role": "tool", "content": "Environment reset complete."}
    assert trajectory.subagent_trajectories is not None
    (inner,) = trajectory.subagent_trajectories
    assert convert_trajectory_to_messages(inner)[1]["content"] == "Config is valid."


def test_f06_a_message_of_parts_and_a_result_of_a_subagent() -> None:
    """The image is referred to; a result that is only a reference has no text."""
    trajectory = read_trajectory(DATA / "atif_multimodal.json")
    question, turn, listed, delegated, answer = convert_trajectory_to_messages(trajectory)
    assert question["content"][1] == {
        "type": "image_url",
        "image_url": {"url": "images/workspace.png"},
    }
    assert turn["reasoning_content"] == "I should list the files before reading one."
    assert turn["model"] == "example-step-model"
    assert [part["text"] for part in listed["content"]] == ["README.md", "package.json"]
    assert delegated == {"role": "tool", "tool_call_id": "call-delegate", "content": ""}
    assert answer["content"].startswith("The workspace")


def test_compressed_files(tmp_path: Path) -> None:
    """The same reader opens both forms, by their content; a damaged file says so."""
    data = (DATA / "atif_multimodal.json").read_bytes()
    path = tmp_path / "document"
    path.write_bytes(gzip.compress(data))
    assert read_trajectory(path) == read_trajectory(DATA / "atif_multimodal.json")
    path.write_bytes(gzip.compress(data)[:-20])
    with pytest.raises(ValueError, match="damaged"):
        read_trajectory(str(path))
