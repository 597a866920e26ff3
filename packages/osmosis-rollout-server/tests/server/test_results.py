"""What trainers see of an outcome: rewards, JSON-safe samples, failures."""

import asyncio
import datetime
import gc
from decimal import Decimal
from typing import Any

import pytest

from osmosis_ai.rollout import (
    ExecutionOutcome,
    ExecutionRequest,
    ExecutionResult,
    RolloutErrorCategory,
    RolloutResultResponse,
    RolloutSample,
    RolloutStatus,
)
from osmosis_ai.rollout.server import create_rollout_server

from .harness import ScriptedBackend, serving, succeeded

QUESTION = {"role": "user", "content": "2+2?"}


async def result_of(outcome: ExecutionOutcome) -> dict[str, Any]:
    """The polled result of a rollout that came to this outcome; it must fit the wire model."""

    async def execute(request: ExecutionRequest) -> ExecutionOutcome:
        return outcome

    async with serving(create_rollout_server(backend=ScriptedBackend(execute))) as client:
        await client.start("r-1")
        result = await client.result("r-1")
        status = await client.status("r-1")
    RolloutResultResponse.model_validate(result)
    reward = None if "sample" not in result else result["sample"]["reward"]
    assert status["reward"] == reward
    assert status["err_message"] == result.get("err_message")
    return result


async def failure_of(execute: Any) -> dict[str, Any]:
    """The polled result when the backend does this."""
    async with serving(create_rollout_server(backend=ScriptedBackend(execute))) as client:
        await client.start("r-1")
        result = await client.result("r-1")
        # The server and the other rollouts go on.
        assert (await client.http.get("/health")).status_code == 200
    assert result["status"] == "failure"
    assert "sample" not in result
    return result


async def test_a_success_shows_the_sample_and_never_the_trajectory_messages() -> None:
    outcome = succeeded(QUESTION, label="4", reward=0.5, metrics={"m": 1}, extra_fields={"e": [1]})
    assert await result_of(outcome) == {
        "rollout_id": "r-1",
        "status": "success",
        "sample": {
            "messages": [QUESTION],
            "label": "4",
            "reward": 0.5,
            "remove_sample": False,
            "metrics": {"m": 1},
            "extra_fields": {"e": [1]},
        },
    }


async def test_a_success_without_a_sample_has_none() -> None:
    outcome = ExecutionOutcome(workflow=ExecutionResult(status=RolloutStatus.SUCCESS))
    assert await result_of(outcome) == {"rollout_id": "r-1", "status": "success"}


async def test_a_removed_sample_shows_no_reward() -> None:
    result = await result_of(succeeded(QUESTION, reward=1.0, remove_sample=True))
    assert result["sample"]["reward"] is None
    assert result["sample"]["remove_sample"] is True


async def test_b15_a_failed_grading_shows_the_sample_and_no_reward() -> None:
    sample = RolloutSample(messages=[QUESTION], reward=1.0)
    workflow = ExecutionResult(status=RolloutStatus.SUCCESS, sample=sample)
    grader = ExecutionResult(
        status=RolloutStatus.FAILURE,
        sample=sample,
        err_message="the judge is down",
        err_category=RolloutErrorCategory.HTTP_ERROR,
    )
    result = await result_of(ExecutionOutcome(workflow=workflow, grader=grader))
    assert result["sample"]["messages"] == [QUESTION]
    assert result["sample"]["reward"] is None
    assert result["err_message"] == "the judge is down"
    assert result["err_category"] == "http_error"


async def test_b15_a_failed_workflow_shows_neither_sample_nor_reward() -> None:
    workflow = ExecutionResult(
        status=RolloutStatus.FAILURE,
        sample=RolloutSample(messages=[QUESTION], reward=1.0),
        err_category=RolloutErrorCategory.TIMEOUT,
        extra_fields={"diagnostics": "not for the wire"},
    )
    assert await result_of(ExecutionOutcome(workflow=workflow)) == {
        "rollout_id": "r-1",
        "status": "failure",
        "err_category": "timeout",
    }


def loop_in(value: dict[str, Any]) -> dict[str, Any]:
    value["self"] = value
    return value


@pytest.mark.parametrize(
    ("metrics", "right"),
    [
        ({"loss": float("nan"), "ok": 1}, {"ok": 1}),
        ({"loss": float("inf"), "nested": [1, float("-inf"), 2]}, {"nested": [1, 2]}),
        ({(1, 2): 1, 3: 4, "ok": (1, 2)}, {"3": 4, "ok": [1, 2]}),
        ({"set": {1}, "bytes": b"x", "ok": 1}, {"ok": 1}),
        ({"when": datetime.datetime(2020, 1, 1), "ok": Decimal("0.5")}, {"ok": 0.5}),
        ({"ok": 1, "loop": loop_in({"k": 1})}, {"ok": 1, "loop": {"k": 1}}),
        ({"big": 2**80, "bigger": 10**400}, {"big": 2**80}),
        ({"text": "a\ud83d", "nul": "\x00\ufffe"}, {"text": "a\ufffd", "nul": "\x00\ufffe"}),
    ],
    ids=["nan", "inf", "keys", "types", "dates", "loop", "integers", "surrogates"],
)
async def test_b22_a_bad_metric_costs_nothing_but_itself(
    metrics: dict[Any, Any], right: dict[str, Any]
) -> None:
    outcome = succeeded(QUESTION, reward=1.0)
    original = outcome.result.sample
    assert original is not None
    # As graders do it: no validation is in the way.
    original.metrics.update(metrics)
    original.extra_fields["nested"] = metrics
    sample = (await result_of(outcome))["sample"]
    assert sample["reward"] == 1.0
    assert sample["messages"] == [QUESTION]
    assert sample["metrics"] == right
    assert sample["extra_fields"] == {"nested": right}


@pytest.mark.parametrize(
    ("content", "right"),
    [
        ("a\ud83d", "a\ufffd"),
        ("\udcb2", "\ufffd"),
        ("\x00 \ufffe", "\x00 \ufffe"),
        ([{"n": float("nan")}, {"n": 1}], [{"n": None}, {"n": 1}]),
        ({"image": b"\x89PNG"}, {"image": "<4 bytes>"}),
        ({"any": {1}, "k": [(1, None)]}, {"any": "<set>", "k": [[1, None]]}),
        (2**80, 2**80),
    ],
    ids=["surrogate", "escape", "controls", "nan", "bytes", "set", "integer"],
)
async def test_b22_b23_only_the_bad_leaf_of_a_message_is_replaced(content: Any, right: Any) -> None:
    message = {"role": "tool", "content": content}
    outcome = succeeded(QUESTION, message, reward=1.0)
    sample = (await result_of(outcome))["sample"]
    assert sample["messages"] == [QUESTION, {"role": "tool", "content": right}]
    assert sample["reward"] == 1.0
    # The sample itself is left alone.
    assert message["content"] is content


class Hostile(dict[str, Any]):
    """A mapping that ends the process of whoever reads it."""

    def items(self) -> Any:
        raise SystemExit

    __iter__ = keys = items


async def test_b22_a_sample_that_cannot_be_encoded_keeps_reward_label_and_flag() -> None:
    outcome = succeeded(QUESTION, label="4", reward=1.0)
    sample = outcome.result.sample
    assert sample is not None
    sample.extra_fields["bad"] = Hostile(a=1)
    result = await result_of(outcome)
    assert result["sample"] == {"label": "4", "reward": 1.0, "remove_sample": False}


class Endless(list[Any]):
    """A sequence that ends the process of whoever asks for its length."""

    def __len__(self) -> int:
        raise SystemExit


@pytest.mark.parametrize("messages", [5, Endless()], ids=["number", "sequence"])
async def test_b22_messages_that_cannot_be_read_do_not_cost_the_reward(messages: Any) -> None:
    outcome = succeeded(QUESTION, label="4", reward=1.0)
    vars(outcome.result.sample)["messages"] = messages
    result = await result_of(outcome)
    assert result["sample"] == {"label": "4", "reward": 1.0, "remove_sample": False}


async def test_b23_error_texts_are_made_fit_for_the_wire() -> None:
    workflow = ExecutionResult(status=RolloutStatus.FAILURE, err_message="bad byte \udcb2")
    result = await result_of(ExecutionOutcome(workflow=workflow))
    assert result["err_message"] == "bad byte \ufffd"


async def test_b30_large_samples_and_long_conversations_are_read_whole() -> None:
    large = await result_of(succeeded({"role": "tool", "content": "x" * 20_000_000}, reward=1.0))
    assert len(large["sample"]["messages"][0]["content"]) == 20_000_000
    long = await result_of(succeeded(*[QUESTION] * 100_000, reward=1.0))
    assert len(long["sample"]["messages"]) == 100_000


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("the pool is empty"), "the pool is empty"),
        (ValueError(), "ValueError"),
        (SystemExit("no more"), "no more"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (asyncio.CancelledError(), "CancelledError"),
        (BaseException("odd"), "odd"),
        (BaseExceptionGroup("many", [SystemExit("inner")]), "many"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
async def test_whatever_a_backend_raises_fails_that_rollout_alone(
    error: BaseException, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def execute(request: ExecutionRequest) -> ExecutionOutcome:
        await asyncio.sleep(0)
        raise error

    result = await failure_of(execute)
    assert result["err_category"] == "internal_error"
    assert message in result["err_message"]
    logged = [r.getMessage() for r in caplog.records if r.levelname == "ERROR"]
    assert len(logged) == 1
    assert type(error).__name__ in logged[0]
    assert "the pool is empty" not in logged[0]


@pytest.mark.parametrize(
    "returned",
    [None, {"status": "success"}, ExecutionOutcome(workflow=ExecutionResult(status="running"))],  # type: ignore[arg-type]
)
async def test_what_is_no_outcome_is_a_failure(returned: Any) -> None:
    async def execute(request: ExecutionRequest) -> Any:
        return returned

    result = await failure_of(execute)
    assert result["err_category"] == "internal_error"
    assert result["err_message"].startswith("the backend returned")


async def test_b20_rollouts_that_only_their_own_futures_hold_survive_the_collector() -> None:
    async def execute(request: ExecutionRequest) -> ExecutionOutcome:
        future = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(0.5, future.set_result, None)
        await future
        return succeeded(reward=1.0)

    async with serving(create_rollout_server(backend=ScriptedBackend(execute))) as client:
        ids = [await client.start(f"r-{number}") for number in range(50)]
        for _ in range(20):
            gc.collect()
            await asyncio.sleep(0)
        results = [await client.result(rollout_id) for rollout_id in ids]
    assert {result["status"] for result in results} == {"success"}


async def test_a_cancellation_from_nowhere_ends_the_rollout_as_cancelled() -> None:
    async def execute(request: ExecutionRequest) -> ExecutionOutcome:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(60)
        return succeeded()

    async with serving(create_rollout_server(backend=ScriptedBackend(execute))) as client:
        await client.start("r-1")
        assert (await client.result("r-1"))["status"] == "cancelled"
