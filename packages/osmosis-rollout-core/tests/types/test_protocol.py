"""The wire models: which requests are taken, and that refusals repeat nothing."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from osmosis_ai.rollout import (
    GraderCompleteRequest,
    RolloutCompleteRequest,
    RolloutInitRequest,
    RolloutInitResponse,
    RolloutResultResponse,
    RolloutStatus,
)
from osmosis_ai.rollout.types import (
    POLLING_LEASE_HEADER,
    CancelRolloutsRequest,
    RolloutStatusResponse,
)

LEAST: dict[str, object] = {"initial_messages": [], "chat_completions_url": "http://policy.test/v1"}
SECRET = "sek-ret"


def init(**fields: object) -> RolloutInitRequest:
    return RolloutInitRequest.model_validate_json(json.dumps({**LEAST, **fields}))


def test_the_least_request_and_its_defaults() -> None:
    request = init()
    assert request.model_dump(exclude=set(LEAST)) == {
        "rollout_id": None,
        "label": None,
        "metadata": None,
        "extra_fields": None,
        "llm_api_key": None,
        "grade": True,
        "agent_timeout_sec": None,
        "grader_timeout_sec": None,
        "completion_callback_url": None,
        "grader_callback_url": None,
        "controller_api_key": None,
    }


@pytest.mark.parametrize("field", sorted(LEAST))
def test_nothing_else_is_required(field: str) -> None:
    with pytest.raises(ValidationError) as caught:
        RolloutInitRequest.model_validate({k: v for k, v in LEAST.items() if k != field})
    assert [error["loc"] for error in caught.value.errors()] == [(field,)]


def test_unknown_keys_are_ignored() -> None:
    assert not hasattr(init(future_field=1), "future_field")


def test_a_whole_request_is_taken_as_it_is() -> None:
    fields: dict[str, Any] = {
        "initial_messages": [{"role": "developer", "content": None, "x": {"y": [1, None]}}],
        "chat_completions_url": "https://policy.test:8443/v1/rollouts/r-1?x=1",
        "rollout_id": "r-1",
        "label": "",
        "metadata": {},
        "extra_fields": {"k": 1},
        "llm_api_key": "key with spaces inside",
        "grade": False,
        "agent_timeout_sec": 0,
        "grader_timeout_sec": -1.5,
        "completion_callback_url": "http://127.0.0.1:9/done/r-1",
        "grader_callback_url": "http://[::1]:9/graded",
        "controller_api_key": "",
    }
    assert init(**fields).model_dump() == fields


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("initial_messages", None),
        ("initial_messages", {"role": "user"}),
        ("initial_messages", [SECRET]),
        ("chat_completions_url", ""),
        ("chat_completions_url", f"policy.test/{SECRET}"),
        ("chat_completions_url", f"ftp://policy.test/{SECRET}"),
        ("chat_completions_url", f"http:///{SECRET}"),
        ("chat_completions_url", f"http://policy.test:99999/{SECRET}"),
        ("chat_completions_url", f"http://policy.test/{SECRET} x"),
        ("chat_completions_url", f"http://policy.test/{SECRET}\n"),
        ("chat_completions_url", f"http://[::1/{SECRET}"),
        ("label", 4),
        ("label", True),
        ("label", [SECRET]),
        ("metadata", [SECRET]),
        ("metadata", SECRET),
        ("extra_fields", SECRET),
        ("grade", SECRET),
        ("grade", None),
        ("agent_timeout_sec", SECRET),
        ("agent_timeout_sec", "5"),
        ("agent_timeout_sec", True),
        ("grader_timeout_sec", [SECRET]),
        ("llm_api_key", 5),
        ("completion_callback_url", SECRET),
        ("grader_callback_url", f"file:///{SECRET}"),
    ],
)
def test_b24_a_wrong_value_is_refused_and_not_repeated(field: str, value: object) -> None:
    with pytest.raises(ValidationError) as caught:
        init(**{field: value, "controller_api_key": SECRET})
    assert {error["loc"][0] for error in caught.value.errors()} == {field}
    assert SECRET not in str(caught.value)
    assert SECRET not in caught.value.json(include_input=False)


@pytest.mark.parametrize("field", ["agent_timeout_sec", "grader_timeout_sec"])
@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_deadline_is_finite(field: str, number: str) -> None:
    body = json.dumps({**LEAST, field: 0}).replace(f'"{field}": 0', f'"{field}": {number}')
    with pytest.raises(ValidationError, match=field):
        RolloutInitRequest.model_validate_json(body)
    with pytest.raises(ValidationError, match=field):
        RolloutInitRequest.model_validate({**LEAST, field: float(number)})


@pytest.mark.parametrize("key", ["k\n", "k\r\nX: y", " ", " k", "k ", "ключ", "k\x00", "k\x7f"])
@pytest.mark.parametrize("field", ["llm_api_key", "controller_api_key"])
def test_b26_a_key_that_no_header_can_hold_is_refused(field: str, key: str) -> None:
    with pytest.raises(ValidationError, match="usable in a header") as caught:
        init(**{field: key + SECRET if key.startswith("k\r") else key})
    assert SECRET not in str(caught.value)
    assert caught.value.errors()[0]["loc"] == (field,)


def test_b26_an_empty_key_means_none_for_the_controller_only() -> None:
    assert init(controller_api_key="").controller_api_key == ""
    assert init(controller_api_key=None, llm_api_key=None).llm_api_key is None
    with pytest.raises(ValidationError, match="llm_api_key"):
        init(llm_api_key="")


@pytest.mark.parametrize(
    "body", [{"ids": []}, {"ids": ["a", "%2e"]}, {"prefix": "a"}, {"all": True}]
)
def test_a_cancellation_names_exactly_one_choice(body: dict[str, object]) -> None:
    assert CancelRolloutsRequest.model_validate(body)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"all": False},
        {"prefix": ""},
        {"ids": ["a"], "prefix": "a"},
        {"ids": ["a"], "all": True},
        {"prefix": "a", "all": True},
        {"ids": None},
        {"ids": "a"},
        {"ids": [5]},
        {"ids": ["a", "../b"]},
    ],
)
def test_any_other_cancellation_is_refused(body: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        CancelRolloutsRequest.model_validate(body)


def test_the_answers_keys_are_the_wires() -> None:
    accepted = RolloutInitResponse(
        rollout_id="r-1",
        polling_lease_token="t",
        result_wait_timeout_sec=30.0,
        polling_lease_timeout_sec=120.0,
    )
    assert accepted.model_dump(mode="json") == {
        "rollout_id": "r-1",
        "status": "queued",
        "polling_lease_token": "t",
        "result_wait_timeout_sec": 30.0,
        "polling_lease_timeout_sec": 120.0,
    }
    status = RolloutStatusResponse(rollout_id="r-1", status=RolloutStatus.UNKNOWN)
    assert status.model_dump(mode="json") == {
        "rollout_id": "r-1",
        "status": "unknown",
        "reward": None,
        "err_message": None,
    }
    assert POLLING_LEASE_HEADER == "X-Osmosis-Rollout-Lease"


def test_results_are_read_whole_and_without_the_optional_parts() -> None:
    result = RolloutResultResponse.model_validate_json(
        '{"rollout_id": "r-1", "status": "failure", "err_category": "http_error",'
        ' "sample": {"messages": [{"role": "user"}], "reward": null}, "err_message": "x"}'
    )
    assert result.sample is not None
    assert (result.sample.reward, result.err_category) == (None, "http_error")
    assert RolloutResultResponse(rollout_id="r", status=RolloutStatus.RUNNING).sample is None


def test_callback_bodies_have_their_keys() -> None:
    done = RolloutCompleteRequest(status=RolloutStatus.SUCCESS, rollout_id="r-1")
    assert list(done.model_dump()) == [
        "status",
        "rollout_id",
        "extra_fields",
        "err_message",
        "err_category",
        "origin",
        "retryable",
        "omitted",
    ]
    graded = GraderCompleteRequest.model_validate({"status": "failure", "rollout_id": "r-1"})
    assert list(graded.model_dump()) == [
        "status",
        "rollout_id",
        "sample",
        "err_message",
        "err_category",
        "origin",
        "retryable",
        "grading_skipped",
        "omitted",
    ]
    with pytest.raises(ValidationError):
        GraderCompleteRequest.model_validate({"status": "cancelled", "rollout_id": "r-1"})
