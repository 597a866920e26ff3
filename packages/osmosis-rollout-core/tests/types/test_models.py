"""Configs, outputs, execution types: field by field."""

import copy
import math
import pickle
from enum import StrEnum
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from osmosis_ai.rollout import (
    AgentWorkflowConfig,
    AgentWorkflowOutput,
    BaseConfig,
    ConcurrencyConfig,
    ExecutionOutcome,
    ExecutionRequest,
    ExecutionResult,
    GraderConfig,
    GraderStatus,
    RolloutErrorCategory,
    RolloutSample,
    RolloutStatus,
)


class Placeholder:
    """A value without a schema, such as configs hold."""

    def __init__(self, **kwargs: Any) -> None:
        self.kwargs = kwargs


class SearchConfig(AgentWorkflowConfig):
    name: str = "search"
    max_iterations: int = 8
    model: Any = Placeholder(params={"temperature": 1.0})
    concurrency: ConcurrencyConfig = ConcurrencyConfig(max_concurrent=4)


class TestConfigs:
    def test_concurrency_is_unlimited_unless_given(self) -> None:
        assert ConcurrencyConfig().max_concurrent is None
        assert ConcurrencyConfig(max_concurrent=1).max_concurrent == 1
        assert AgentWorkflowConfig(name="x").concurrency.max_concurrent is None
        assert GraderConfig(name="x").concurrency.max_concurrent is None

    @pytest.mark.parametrize("limit", [0, -1, 1.5, "many"])
    def test_a_limit_is_at_least_one(self, limit: Any) -> None:
        with pytest.raises(ValidationError):
            ConcurrencyConfig(max_concurrent=limit)
        config = ConcurrencyConfig()
        with pytest.raises(ValidationError):
            config.max_concurrent = limit

    def test_extra_fields_are_kept(self) -> None:
        config = BaseConfig.model_validate({"name": "x", "temperature": 0.5, "tool": Placeholder()})
        assert config.model_extra is not None
        assert config.model_extra["temperature"] == 0.5
        assert config.description is None

    def test_a_name_is_required(self) -> None:
        for kind in (BaseConfig, AgentWorkflowConfig, GraderConfig):
            with pytest.raises(ValidationError, match="name"):
                kind.model_validate({})

    def test_assignments_are_validated(self) -> None:
        config = SearchConfig()
        with pytest.raises(ValidationError):
            config.max_iterations = "many"  # type: ignore[assignment]
        config.max_iterations = 2
        assert config.max_iterations == 2

    def test_subclasses_may_give_defaults_and_hold_any_type(self) -> None:
        config = SearchConfig()
        assert (config.name, config.concurrency.max_concurrent) == ("search", 4)
        assert isinstance(config.model, Placeholder)

    def test_b06_configs_share_nothing(self) -> None:
        first, second = SearchConfig(), copy.deepcopy(SearchConfig())
        first.concurrency.max_concurrent = 1
        first.model.kwargs["params"]["temperature"] = 0.0
        assert second.concurrency.max_concurrent == 4
        assert SearchConfig().concurrency.max_concurrent == 4
        assert second.model.kwargs == {"params": {"temperature": 1.0}}


class TestOutput:
    def test_the_defaults(self) -> None:
        output = AgentWorkflowOutput()
        assert (output.messages, output.metrics, output.info) == (None, {}, {})

    def test_unknown_fields_are_refused(self) -> None:
        with pytest.raises(ValidationError, match="reward"):
            AgentWorkflowOutput.model_validate({"reward": 1.0})

    @pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
    def test_a_metric_is_finite(self, value: float) -> None:
        with pytest.raises(ValidationError, match="finite"):
            AgentWorkflowOutput(metrics={"m": value})

    def test_a_nan_written_later_is_found_at_the_next_boundary(self) -> None:
        output = AgentWorkflowOutput(metrics={"m": 1.0})
        output.metrics["m"] = math.nan
        with pytest.raises(ValidationError, match="finite"):
            TypeAdapter(AgentWorkflowOutput).validate_python(output)
        with pytest.raises(ValidationError, match="finite"):
            AgentWorkflowOutput.model_validate(output)


class TestExecution:
    def test_enums_are_text_and_exact(self) -> None:
        values: dict[type[StrEnum], list[str]] = {
            RolloutStatus: [
                "queued",
                "running",
                "grading",
                "success",
                "failure",
                "cancelled",
                "unknown",
            ],
            RolloutErrorCategory: [
                "timeout",
                "validation_error",
                "http_error",
                "agent_error",
                "lease_expired",
                "internal_error",
            ],
            GraderStatus: ["success", "failure"],
        }
        for enum, expected in values.items():
            assert [str(member) for member in enum] == expected

    def test_final_states(self) -> None:
        assert [status for status in RolloutStatus if status.is_final] == [
            "success",
            "failure",
            "cancelled",
        ]

    def test_the_requests_defaults(self) -> None:
        request = ExecutionRequest(id="r-1", prompt=[])
        assert (request.label, request.metadata, request.grade) == (None, None, True)
        assert (request.agent_timeout_sec, request.grader_timeout_sec) == (None, None)

    @pytest.mark.parametrize("field", ["agent_timeout_sec", "grader_timeout_sec"])
    def test_deadlines_are_finite_or_none(self, field: str) -> None:
        """Zero and negative ones are accepted: they have expired already."""
        for seconds in (0, -1.5, 60, None):
            request = ExecutionRequest.model_validate({"id": "r", "prompt": [], field: seconds})
            assert getattr(request, field) == seconds
        for seconds in (math.nan, math.inf):
            with pytest.raises(ValidationError):
                ExecutionRequest.model_validate({"id": "r", "prompt": [], field: seconds})

    def test_errors_do_not_repeat_what_was_given(self) -> None:
        for kind in (ExecutionRequest, ExecutionResult, AgentWorkflowOutput, RolloutSample):
            with pytest.raises(ValidationError) as caught:
                kind.model_validate(
                    {"label": 5, "info": "sek-ret", "status": "sek-ret"}
                    | {"id": "/sek-ret", "messages": "sek-ret"}
                )
            assert "sek-ret" not in str(caught.value)

    def test_the_graders_result_counts_if_there_is_one(self) -> None:
        workflow = ExecutionResult(status=RolloutStatus.SUCCESS)
        grader = ExecutionResult(status=RolloutStatus.FAILURE)
        assert ExecutionOutcome(workflow=workflow).result == workflow
        assert ExecutionOutcome(workflow=workflow, grader=grader).result == grader

    def test_a_result_holds_the_very_sample_that_it_was_given(self) -> None:
        """Grading sets the reward on the sample that the outcome then carries."""
        sample = RolloutSample()
        result = ExecutionResult(status=RolloutStatus.SUCCESS, sample=sample)
        assert result.sample is sample
        assert ExecutionOutcome(workflow=result).workflow is result

    @pytest.mark.parametrize(
        "model",
        [
            SearchConfig(),
            ExecutionRequest(id="r", prompt=[{"a": 1}], metadata={"k": [1]}),
            ExecutionOutcome(
                workflow=ExecutionResult(status=RolloutStatus.SUCCESS, sample=RolloutSample())
            ),
            AgentWorkflowOutput(messages=[{"a": 1}], metrics={"m": 1.0}),
        ],
        ids=lambda model: type(model).__name__,
    )
    def test_models_can_be_copied_and_pickled(self, model: BaseModel) -> None:
        for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            assert type(other) is type(model)
            assert other.model_dump(exclude={"model"}) == model.model_dump(exclude={"model"})
