"""Samples: messages of any kind, rewards that are numbers, copies that keep apart."""

import copy
import logging
import math
import pickle
from collections import deque
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from osmosis_ai.rollout import AgentWorkflowOutput, GraderContext, RolloutSample

REWARDS: list[tuple[Any, float]] = [
    (1, 1.0),
    (-0.5, -0.5),
    (True, 1.0),
    (np.bool_(True), 1.0),
    (np.float32(0.5), 0.5),
    (np.float64(0.1), 0.1),
    (np.int64(1), 1.0),
    (np.uint8(7), 7.0),
    (Decimal("0.1"), 0.1),
    (Fraction(1, 4), 0.25),
    (2**70, float(2**70)),
]

REFUSED: list[Any] = [
    np.array(1.0),
    np.array([1.0]),
    np.timedelta64(1, "s"),
    np.complex128(1),
    1j,
    "0.5",
    " 1 ",
    "1_000",
    b"1",
    "nan",
    [1.0],
    {"reward": 1.0},
    math.nan,
    math.inf,
    -math.inf,
    np.float32("nan"),
    Decimal("NaN"),
    Decimal("sNaN"),
    Decimal("1e999"),
    10**400,
    object(),
]


class TestRewards:
    @pytest.mark.parametrize(("value", "expected"), REWARDS)
    def test_b09_numbers_become_floats(self, value: Any, expected: float) -> None:
        context = GraderContext(sample=RolloutSample())
        context.set_reward(value)
        assert context.sample is not None
        assert context.sample.reward == expected
        assert type(context.sample.reward) is float
        assert AgentWorkflowOutput(metrics={"m": value}).metrics == {"m": expected}

    @pytest.mark.parametrize("value", REFUSED, ids=lambda value: type(value).__name__)
    def test_b09_everything_else_is_refused(self, value: Any) -> None:
        context = GraderContext(sample=RolloutSample(reward=0.25))
        with pytest.raises(ValidationError):
            context.set_reward(value)
        with pytest.raises(ValidationError):
            RolloutSample(reward=value)
        with pytest.raises(ValidationError):
            AgentWorkflowOutput(metrics={"m": value})
        assert context.sample is not None
        assert context.sample.reward == 0.25

    @pytest.mark.parametrize(
        ("value", "problem"),
        [
            ("sek-ret", "expected a number, got str"),
            (math.nan, "must be finite"),
            (10**400, "too large"),
        ],
        ids=["text", "nan", "huge"],
    )
    def test_a_refusal_says_what_is_wrong_and_not_the_value(self, value: Any, problem: str) -> None:
        with pytest.raises(ValidationError, match=problem) as caught:
            RolloutSample(reward=value)
        assert "sek-ret" not in str(caught.value)


class TestMessages:
    def test_b07_values_of_any_type_are_kept_as_they_are(self) -> None:
        messages: list[dict[str, Any]] = [
            {
                "role": "assistant",
                "content": [{"text": "x"}],
                "metadata": {"usage": {"inputTokens": 1}},
                "tracking_id": "t-1",
            },
            {"role": "assistant", "content": None},
            {"content": 5, "extra": object},
        ]
        sample = RolloutSample(messages=messages)
        assert sample.messages == messages
        assert sample.trajectory_messages == messages

    def test_any_sequence_will_do(self) -> None:
        for messages in (({"a": 1},), deque([{"a": 1}])):
            assert list(RolloutSample(messages=messages).messages) == [{"a": 1}]

    @pytest.mark.parametrize("messages", ["text", [5], {"role": "user"}, None, ["text"]])
    def test_what_is_no_sequence_of_objects_is_refused(self, messages: Any) -> None:
        with pytest.raises(ValidationError):
            RolloutSample(messages=messages)

    def test_b06_edits_of_messages_do_not_reach_the_archive(self) -> None:
        sample = RolloutSample(messages=[{"role": "user", "content": {"text": "x"}}])
        first: Any = sample.messages[0]
        first["content"]["text"] = "edited"
        first["role"] = "system"
        assert sample.trajectory_messages == [{"role": "user", "content": {"text": "x"}}]

    def test_b06_the_callers_list_stays_the_callers(self) -> None:
        mine: list[dict[str, Any]] = [{"role": "user"}]
        sample = RolloutSample(messages=mine)
        mine.append({"role": "assistant"})
        assert len(sample.messages) == 1


class TestTrajectoryMessages:
    def test_none_when_given_stays_none(self) -> None:
        assert (
            RolloutSample(messages=[{"a": 1}], trajectory_messages=None).trajectory_messages is None
        )

    def test_given_ones_are_kept(self) -> None:
        sample = RolloutSample(messages=[{"a": 1}], trajectory_messages=[])
        assert sample.trajectory_messages == []

    def test_none_survives_copies_and_revalidation(self) -> None:
        sample = RolloutSample(messages=[{"a": 1}], trajectory_messages=None)
        for other in (
            copy.deepcopy(sample),
            sample.model_copy(deep=True),
            RolloutSample.model_validate(sample.model_dump()),
            sample.json_safe_copy(),
        ):
            assert other.trajectory_messages is None

    @pytest.mark.parametrize("error", [RuntimeError, BaseException])
    def test_messages_that_cannot_be_copied_survive(
        self, error: type[BaseException], caplog: pytest.LogCaptureFixture
    ) -> None:
        """A panic in a Rust extension, which is a bare BaseException, included."""

        class Uncopyable:
            def __deepcopy__(self, memo: object) -> "Uncopyable":
                raise error

        content = Uncopyable()
        with caplog.at_level(logging.WARNING):
            sample = RolloutSample(messages=[{"content": content}])
        assert sample.messages[0]["content"] is content
        assert sample.trajectory_messages is None
        assert "no trajectory will be saved" in caplog.text

    def test_a_later_assignment_counts(self) -> None:
        sample = RolloutSample(messages=[{"a": 1}])
        sample.trajectory_messages = [{"b": 2}]
        assert sample.trajectory_messages == [{"b": 2}]
        sample.trajectory_messages = None
        assert sample.trajectory_messages is None


class TestSample:
    def test_the_defaults(self) -> None:
        sample = RolloutSample()
        assert (sample.messages, sample.trajectory_messages) == ([], [])
        assert (sample.label, sample.reward, sample.remove_sample) == (None, None, False)
        assert (sample.metrics, sample.extra_fields) == ({}, {})

    @pytest.mark.parametrize(
        ("field", "value"), [("label", 4), ("reward", "1"), ("messages", 5), ("metrics", [])]
    )
    def test_assignments_are_validated(self, field: str, value: object) -> None:
        sample = RolloutSample()
        with pytest.raises(ValidationError):
            setattr(sample, field, value)

    def test_copies_and_pickles_are_whole_and_apart(self) -> None:
        sample = RolloutSample(messages=[{"a": [1]}], reward=1.0, metrics={"m": [1]})
        for other in (copy.deepcopy(sample), pickle.loads(pickle.dumps(sample))):
            assert other == sample
            other.metrics["m"].append(2)
            other.messages[0]["a"].append(2)
            assert sample.metrics == {"m": [1]}
            assert sample.trajectory_messages == [{"a": [1]}]
            assert sample.messages == [{"a": [1]}]

    def test_json_safe_copy_cleans_metrics_and_extra_fields(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        """One warning for everything that is left out, and the sample itself stays as it was."""
        metrics = {"loss": math.nan, "n": np.int64(3), 7: (1, 2), "raw": b"x"}
        sample = RolloutSample(
            messages=[{"t": (1,)}], reward=1.0, metrics={}, extra_fields={"t": (1, {2})}
        )
        sample.metrics.update(metrics)  # type: ignore[arg-type]
        with caplog.at_level(logging.WARNING):
            safe = sample.json_safe_copy()
        assert safe.metrics == {"n": 3, "7": [1, 2]}
        assert safe.extra_fields == {"t": [1]}
        assert (safe.reward, safe.messages) == (1.0, [{"t": (1,)}])
        assert math.isnan(sample.metrics["loss"])
        assert [record.message for record in caplog.records] == [
            "Left out what JSON cannot hold: 2 value(s) of metrics, 1 of extra_fields."
        ]

    def test_json_safe_copy_of_good_values_says_nothing(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        safe = RolloutSample(metrics={"a": 1.5}).json_safe_copy()
        assert safe.metrics == {"a": 1.5}
        assert not caplog.records
