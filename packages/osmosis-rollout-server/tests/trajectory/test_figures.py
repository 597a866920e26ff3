"""Times, models, usage, token ids and log probabilities: kept where given, never made up."""

from datetime import UTC, datetime
from typing import Any

import pytest
from chats import convert

from osmosis_ai.rollout.trajectory import Metrics, Step


def agent_step(**message: Any) -> Step:
    (step,) = convert({"role": "assistant", "content": "a", **message}).steps
    return step


def metrics_of(**message: Any) -> dict[str, Any]:
    step = agent_step(**message)
    assert step.metrics is not None
    assert step.llm_call_count == 1
    return step.metrics.model_dump(exclude_none=True)


def test_absent_stays_absent() -> None:
    """A message that tells nothing of its call leads to a step that tells nothing."""
    step = agent_step(usage=None, model="", created_at=None)
    assert (step.metrics, step.llm_call_count, step.model_name, step.timestamp) == (None,) * 4


@pytest.mark.parametrize(
    ("message", "stamp"),
    [
        ({"created_at": 1_700_000_000}, "2023-11-14T22:13:20Z"),
        ({"created_at": 1_700_000_000.5}, "2023-11-14T22:13:20.500000Z"),
        ({"created_at": 1_700_000_000_500}, "2023-11-14T22:13:20.500000Z"),
        ({"timestamp": "2026-01-02T03:04:05Z"}, "2026-01-02T03:04:05Z"),
        ({"timestamp": "2026-01-02 03:04:05+02:00"}, "2026-01-02T03:04:05+02:00"),
        ({"completed_at": "2026-01-02T03:04:05"}, "2026-01-02T03:04:05"),
        ({"completed_at": datetime(2026, 1, 2, tzinfo=UTC)}, "2026-01-02T00:00:00Z"),
        ({"extra": {"timestamp": 1_700_000_000}}, "2023-11-14T22:13:20Z"),
        ({"created": 1_700_000_000}, "2023-11-14T22:13:20Z"),
        ({"created_at": "soon", "timestamp": 1_700_000_000}, "2023-11-14T22:13:20Z"),
        ({"created_at": True}, None),
        ({"created_at": 0}, None),
        ({"created_at": -5}, None),
        ({"created_at": 1e30}, None),
        ({"created_at": float("nan")}, None),
        ({"created_at": "2026-01-02"}, None),
        ({"created_at": "\ud83d"}, None),
        ({"created_at": [1]}, None),
    ],
)
def test_timestamps(message: dict[str, Any], stamp: str | None) -> None:
    """Seconds, milliseconds and ISO texts are times on every step; the rest stays in `extra`."""
    assert agent_step(**message).timestamp == stamp
    (step,) = convert({"role": "user", "content": "a", **message}).steps
    assert step.timestamp == stamp


def test_unusable_times_are_kept() -> None:
    """What cannot be read as a time is not lost, nor is a second time."""
    step = agent_step(created_at="soon", timestamp=1_700_000_000, completed_at=1_700_000_001)
    assert step.extra == {"created_at": "soon", "completed_at": 1_700_000_001}


@pytest.mark.parametrize(
    ("message", "name"),
    [
        ({"model": "m"}, "m"),
        ({"model": "", "model_name": "n"}, "n"),
        ({"model": 5, "extra": {"response": {"model": "r"}}}, "r"),
        ({"extra": {"response": {"model": ""}}}, None),
        ({"extra": "text"}, None),
    ],
)
def test_model_names(message: dict[str, Any], name: str | None) -> None:
    """The first name that is not empty is the step's model."""
    assert agent_step(**message).model_name == name


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (
            {"prompt_tokens": 3, "completion_tokens": 0, "total_tokens": 3},
            {"prompt_tokens": 3, "completion_tokens": 0, "extra": {"total_tokens": 3}},
        ),
        (
            {"input_tokens": 3, "output_tokens": 4, "cost": 0.5, "cache_read_input_tokens": 1},
            {"prompt_tokens": 3, "completion_tokens": 4, "cached_tokens": 1, "cost_usd": 0.5},
        ),
        (
            {"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": 0}},
            {
                "prompt_tokens": 3,
                "cached_tokens": 0,
                "extra": {"prompt_tokens_details": {"cached_tokens": 0}},
            },
        ),
        ({"prompt_tokens": 3.0, "cost_usd": 1}, {"prompt_tokens": 3, "cost_usd": 1.0}),
        (
            {"prompt_tokens": "3", "completion_tokens": True, "cost": "free"},
            {"extra": {"prompt_tokens": "3", "completion_tokens": True, "cost": "free"}},
        ),
        (
            {"prompt_tokens": -1, "input_tokens": 2},
            {"prompt_tokens": 2, "extra": {"prompt_tokens": -1}},
        ),
        ({"prompt_tokens": 2**64}, {"extra": {"prompt_tokens": str(2**64)}}),
        ({"prompt_tokens": 1, "extra": {"a": 1}}, {"prompt_tokens": 1, "extra": {"a": 1}}),
    ],
)
def test_usage_in_many_spellings(usage: Any, expected: dict[str, Any]) -> None:
    """Zero is a value, details are kept, and what is no count is no count."""
    assert metrics_of(usage=usage) == expected


def test_places_of_usage() -> None:
    """The message's own usage comes first, then the response's, then Strands' metadata."""
    strands = {"usage": {"inputTokens": 1, "outputTokens": 2, "cacheReadInputTokens": 0}}
    response = {"response": {"usage": {"prompt_tokens": 5}}}
    assert metrics_of(metadata=strands) == {
        "prompt_tokens": 1,
        "completion_tokens": 2,
        "cached_tokens": 0,
    }
    assert metrics_of(metadata=strands, extra=response) == {"prompt_tokens": 5}
    assert metrics_of(metadata=strands, usage={"prompt_tokens": 7}) == {"prompt_tokens": 7}
    assert agent_step(usage="much").extra == {"usage": "much"}


def test_usage_of_other_messages_goes_to_extra() -> None:
    """Only agent steps have metrics and models."""
    (step,) = convert({"role": "user", "content": "a", "usage": {"a": 1}, "model": "m"}).steps
    assert step.extra == {"usage": {"a": 1}, "model": "m"}


def test_token_ids_and_logprobs() -> None:
    """What the policy client annotates becomes the step's metrics, token by token."""
    assert metrics_of(prompt_token_ids=[1], token_ids=[2, 2**40], logprobs=[-0.5, -1]) == {
        "prompt_token_ids": [1],
        "completion_token_ids": [2, 2**40],
        "logprobs": [-0.5, -1],
    }


@pytest.mark.parametrize("bad", [None, float("nan"), float("-inf"), "x", True])
def test_logprobs_with_a_hole_go_whole_to_extra(bad: Any) -> None:
    """Readers refuse nulls in the field itself, and a shortened list would lie."""
    metrics = metrics_of(logprobs=[-0.5, bad], token_ids=[1, 2])
    kept = None if isinstance(bad, float) else bad
    assert metrics == {"completion_token_ids": [1, 2], "extra": {"logprobs": [-0.5, kept]}}


def test_openai_logprobs() -> None:
    """The numbers go to the field, the alternatives stay beside them."""
    given = {"content": [{"token": "a", "logprob": -0.5, "top_logprobs": []}]}
    assert metrics_of(logprobs=given) == {"logprobs": [-0.5], "extra": {"logprobs": given}}


@pytest.mark.parametrize("ids", [[1, 2.5], ["a"], [True], [2**64], "12", {"a": 1}])
def test_ids_that_are_none_go_to_extra(ids: Any) -> None:
    """A list of token ids is whole numbers, or it is kept as it is."""
    metrics = Metrics.model_validate(metrics_of(token_ids=ids))
    assert metrics.completion_token_ids is None
    assert metrics.extra is not None
    assert "token_ids" in metrics.extra
