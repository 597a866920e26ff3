"""Whatever a history looks like: it converts, the document is valid, and no text is lost."""

import asyncio
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from chats import convert, histories, report_answers, text_leaves
from hypothesis import given, settings

from osmosis_ai.rollout import ExecutionResult, RolloutSample, RolloutStatus
from osmosis_ai.rollout.trajectory import Trajectory, TrajectoryReport, save_trajectory

# What the format says by its structure, or spells anew.
STRUCTURE = {
    *("role", "type", "content", "text", "image_url", "url", "tool_calls", "function_call"),
    *("function", "custom", "name", "arguments", "id", "tool_call_id", "reasoning"),
    *("reasoning_content", "model", "model_name", "usage", "created_at", "timestamp", "created"),
    *("token_ids", "prompt_token_ids", "logprobs", "extra", "prompt_tokens", "input_tokens"),
    *("outputTokens", "cost", "subagents", "messages", "agent_name"),
}
RESPELLED = {"type", "role", "created_at", "timestamp", "id", "tool_call_id"}


@given(histories)
def test_every_history_becomes_a_valid_document(history: list[dict[str, Any]]) -> None:
    """Every turn has a step of its own, every result a place, and the counts agree."""
    trajectory = convert(*history)
    roles = [message.get("role") for message in history]
    results = [r for s in trajectory.steps if s.observation for r in s.observation.results]
    assert len(results) == roles.count("tool") + roles.count("function")
    assert [s.source for s in trajectory.steps].count("agent") == roles.count("assistant")
    assert trajectory.final_metrics is not None
    assert trajectory.final_metrics.total_steps == len(trajectory.steps)


@given(histories)
@settings(max_examples=50)
def test_every_history_is_saved_as_strict_json(history: list[dict[str, Any]]) -> None:
    """The file holds what the conversion gives, in JSON that any reader takes."""
    sample = RolloutSample(messages=[], trajectory_messages=history)
    result = ExecutionResult(status=RolloutStatus.SUCCESS, sample=sample)
    with tempfile.TemporaryDirectory() as root:
        asyncio.run(save_trajectory(rollout_id="r-1", result=result, artifact_root=root))
        data = Path(root, "r-1", "trajectory.json").read_bytes()
    json.loads(data, parse_constant=lambda constant: 1 / 0)
    saved = Trajectory.model_validate_json(data)
    assert saved.steps == convert(*history, files={}).steps


@given(histories, report_answers)
def test_every_report_leads_to_a_valid_document(
    history: list[dict[str, Any]], answer: dict[str, Any]
) -> None:
    """Whatever a trainer reports, the document is valid, and nothing reported is dropped."""
    report = TrajectoryReport.from_answer(answer, rollout_id="r-1")
    trajectory = convert(*history, report=report, initial_messages=history[:2])
    assert trajectory.steps[0].metrics is None  # it came in with the prompt
    if report is not None and len(report.samples) > 1:
        assert trajectory.extra is not None
        kept = trajectory.extra["osmosis"]["unmatched_sample_reports"]
        assert len(kept) == len(report.samples)


@given(histories)
def test_no_text_is_lost(history: list[dict[str, Any]]) -> None:
    """Every text of a history is somewhere in the document, if only with surrogates replaced."""
    document = convert(*history).model_dump()
    everything = "\n".join(text_leaves(document))
    for message in history:
        for text in said(message):
            assert is_told(text, everything)


def said(value: Any) -> Iterator[str]:
    """Yield the texts of a message that must be found again."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            if key not in RESPELLED and item is not None:
                yield from (said(key) if key not in STRUCTURE else ())
                yield from said(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from said(item)


def is_told(text: str, everything: str) -> bool:
    """Look for a text as it is, inside of JSON text, and read as the arguments of a call."""
    readable = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if readable in everything or json.dumps(readable, ensure_ascii=False)[1:-1] in everything:
        return True
    try:
        parsed = json.loads(text)
    except ValueError:
        return False
    return isinstance(parsed, dict) and all(is_told(leaf, everything) for leaf in said(parsed))
