"""Agents behind tool results, agents that take turns, and the tokens of their calls."""

from typing import Any

import pytest
from chats import convert

from osmosis_ai.rollout.trajectory import convert_trajectory_to_messages

USER = {"role": "user", "content": "2+2?"}
CALL = {"id": "x", "type": "function", "function": {"name": "ask", "arguments": "{}"}}
TURN = {"role": "assistant", "content": None, "tool_calls": [CALL]}
SOUND = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}


def answered(*runs: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": "x", "content": "4", "subagents": list(runs)}


def run(*messages: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"messages": list(messages), **fields}


def test_a_subagent_is_embedded_and_referred_to() -> None:
    """Its conversation is a document of its own, with its tools and its tokens."""
    tools = [{"type": "function", "function": {"name": "add"}}]
    said = {"role": "assistant", "content": "4", "usage": {"completion_tokens": 3}}
    inner = run({**USER, "tool_definitions": tools}, said, agent_name="adder")
    trajectory = convert(USER, TURN, answered(inner, run(USER)))
    observation = trajectory.steps[1].observation
    assert observation is not None
    (result,) = observation.results
    assert result.content == "4"
    assert result.extra is None
    assert result.subagent_trajectory_ref is not None
    assert [ref.trajectory_id for ref in result.subagent_trajectory_ref] == ["r-1/1", "r-1/2"]
    assert trajectory.subagent_trajectories is not None
    first, second = trajectory.subagent_trajectories
    assert (first.trajectory_id, first.session_id) == ("r-1/1", "r-1")
    assert (first.agent.name, first.agent.tool_definitions) == ("adder", tools)
    assert [message["content"] for message in convert_trajectory_to_messages(first)] == [
        "2+2?",
        "4",
    ]
    assert first.final_metrics is not None
    assert first.final_metrics.total_completion_tokens == 3
    assert second.agent.name == trajectory.agent.name


def test_a_call_that_did_not_end_has_subagents_but_no_content() -> None:
    """A rollout that was cut off inside a tool keeps what went on there, and no made-up result."""
    cut = {"role": "tool", "tool_call_id": "x", "subagents": [run(USER)]}
    trajectory = convert(USER, TURN, cut)
    observation = trajectory.steps[1].observation
    assert observation is not None
    (result,) = observation.results
    assert (result.source_call_id, result.content) == ("x", None)
    assert result.subagent_trajectory_ref is not None
    assert [message["role"] for message in convert_trajectory_to_messages(trajectory)] == [
        "user",
        "assistant",
        "tool",
    ]


def test_subagents_of_subagents() -> None:
    """Each is embedded in its caller's document; deeper ones than readers like stay data."""
    conversation = run(USER, {"role": "user", "content": [SOUND]})
    for _ in range(6):
        conversation = run(USER, TURN, answered(conversation))
    trajectory = convert(*conversation["messages"])
    assert trajectory.schema_version == "ATIF-v1.7"  # the sound lies too deep to be one
    ids: list[str | None] = []
    level = trajectory
    while level.subagent_trajectories:
        (level,) = level.subagent_trajectories
        ids.append(level.trajectory_id)
    assert ids == ["r-1/1", "r-1/1/1", "r-1/1/1/1", "r-1/1/1/1/1"]
    observation = level.steps[1].observation
    assert observation is not None
    assert observation.results[0].extra is not None
    assert "subagents" in observation.results[0].extra


def test_a_sound_of_a_subagent_needs_the_newer_version() -> None:
    """The whole document says so."""
    files: dict[str, bytes] = {}
    inner = run({"role": "user", "content": [SOUND]})
    trajectory = convert(TURN, answered(inner), files=files)
    assert trajectory.schema_version == "ATIF-v1.8"
    assert len(files) == 1


@pytest.mark.parametrize("odd", [[], 5, [1], [{}], [{"messages": []}], [{"messages": ["x"]}]])
def test_what_is_no_conversation_stays_data(odd: object) -> None:
    """A tool may have a field of that name for something else."""
    trajectory = convert(TURN, {**answered(), "subagents": odd})
    assert trajectory.subagent_trajectories is None
    observation = trajectory.steps[0].observation
    assert observation is not None
    assert observation.results[0].extra == {"subagents": odd}


def test_agents_that_take_turns_are_named_on_their_steps() -> None:
    """A handoff stays one transcript."""
    one = {"role": "assistant", "content": "over to you", "agent_name": "triage"}
    two = {"role": "assistant", "content": "4", "agent_name": "math"}
    steps = convert(USER, one, two).steps
    assert [step.extra for step in steps] == [
        None,
        {"agent_name": "triage"},
        {"agent_name": "math"},
    ]


def turn(prompt: list[int] | None, answer: list[int] | None) -> dict[str, Any]:
    return {"role": "assistant", "content": "4", "prompt_token_ids": prompt, "token_ids": answer}


@pytest.mark.parametrize(
    ("turns", "told"),
    [
        ([turn([1], [2])], None),
        ([turn([1], [2]), turn(None, [4])], None),
        ([turn([1], None), turn([1, 2], [4])], None),
        (
            [turn([1], [2]), turn([1, 2, 3], [4]), turn([1, 2, 3, 4], [5])],
            {"prompts_extend": True, "compared": 2, "not_compared": 0},
        ),
        (
            [turn([1], [2, 3]), turn([1, 2, 9, 9], [4]), turn([1], [5]), turn(None, None)],
            {
                "prompts_extend": False,
                "compared": 2,
                "not_compared": 1,
                "first_break": {"step_id": 2, "token_index": 2},
            },
        ),
        (
            [turn([1, 2], [3]), turn([1, 2], [3])],
            {
                "prompts_extend": False,
                "compared": 1,
                "not_compared": 0,
                "first_break": {"step_id": 2, "token_index": 2},
            },
        ),
    ],
)
def test_token_continuity(turns: list[dict[str, Any]], told: object) -> None:
    """Whether each prompt begins with all the tokens of the call before, and where it does not."""
    trajectory = convert(*turns)
    assert trajectory.extra is not None
    assert trajectory.extra["osmosis"].get("token_continuity") == told
