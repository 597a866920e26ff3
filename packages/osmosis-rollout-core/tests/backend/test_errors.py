"""What failures are called and what they say."""

import asyncio
import json

import pytest
from pydantic import TypeAdapter, ValidationError

from osmosis_ai.rollout.agent_workflow import ToolError
from osmosis_ai.rollout.backend.errors import error_category, error_message, failure
from osmosis_ai.rollout.policy import PolicyError
from osmosis_ai.rollout.types import RolloutErrorOrigin, RolloutStatus


def caused[E: BaseException](error: E, cause: BaseException) -> E:
    """Raise one from the other, as frameworks do."""
    try:
        raise error from cause
    except BaseException:
        return error


def validation_error() -> ValidationError:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(int).validate_python("x")
    return caught.value


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError


class Panicking(Exception):
    def __str__(self) -> str:
        raise BaseException


@pytest.mark.parametrize(
    ("error", "category"),
    [
        (TimeoutError("t"), "timeout"),
        (ValueError("v"), "validation_error"),
        (json.JSONDecodeError("j", "", 0), "validation_error"),
        (TypeError("t"), "validation_error"),
        (AssertionError(), "validation_error"),
        (validation_error(), "validation_error"),
        (RuntimeError("r"), "agent_error"),
        (KeyError("k"), "agent_error"),
        (ConnectionResetError(), "agent_error"),
        (asyncio.CancelledError(), "agent_error"),
        (SystemExit(1), "agent_error"),
        (KeyboardInterrupt(), "agent_error"),
        (PolicyError("cut stream"), "http_error"),
        (PolicyError("busy", status=429), "http_error"),
        (PolicyError("slow", status=408), "http_error"),
        (PolicyError("down", status=503), "http_error"),
        (PolicyError("bad role", status=400), "agent_error"),
        (PolicyError("no such route", status=404), "agent_error"),
        (caused(RuntimeError("f"), PolicyError("down", status=502)), "http_error"),
        (caused(RuntimeError("f"), caused(KeyError("k"), TimeoutError())), "timeout"),
        (caused(ValueError("v"), PolicyError("down")), "validation_error"),
        (ExceptionGroup("g", [RuntimeError("r"), PolicyError("down")]), "http_error"),
        (ExceptionGroup("g", [ExceptionGroup("h", [KeyError("k")])]), "agent_error"),
        (Mute(), "agent_error"),
    ],
    ids=repr,
)
def test_b15_category(error: BaseException, category: str) -> None:
    """The first known exception among the error, its group and its causes decides."""
    assert error_category(error) == category


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (RuntimeError("it broke"), "it broke"),
        (RuntimeError(), "RuntimeError"),
        (TimeoutError("search api"), "search api"),
        (TimeoutError(), "TimeoutError"),
        (asyncio.CancelledError(), "CancelledError"),
        (SystemExit("no more"), "no more"),
        (SystemExit(), "SystemExit"),
        (Mute(), "Mute"),
        (Panicking(), "Panicking"),
        (caused(RuntimeError("outer"), ValueError("inner")), "outer"),
        (
            caused(RuntimeError("outer"), PolicyError("bad role", status=400)),
            "outer: the policy endpoint answered 400: bad role",
        ),
        (caused(RuntimeError("got: down"), PolicyError("down")), "got: down"),
        (
            ExceptionGroup("unhandled", [ExceptionGroup("h", [KeyError("k")])]),
            "unhandled (1 sub-exception): 'k'",
        ),
    ],
    ids=repr,
)
def test_message(error: BaseException, message: str) -> None:
    """An error's text, or its type's name; the endpoint's own message is never lost."""
    assert error_message(error) == message


@pytest.mark.parametrize(
    ("error", "origin", "retryable"),
    [
        (RuntimeError("r"), "grader", False),
        (ValueError("v"), "grader", False),
        (TimeoutError("a socket"), "grader", True),
        (ConnectionResetError(), "grader", True),
        (PolicyError("cut stream"), "policy_endpoint", True),
        (PolicyError("bad role", status=400), "policy_endpoint", False),
        (caused(RuntimeError("f"), PolicyError("down", status=502)), "policy_endpoint", True),
        (ToolError("search"), "tool", False),
        (caused(ToolError("search"), TimeoutError()), "tool", True),
        (ExceptionGroup("g", [caused(RuntimeError("r"), ToolError("search"))]), "tool", False),
        (caused(ToolError("sub-agent"), PolicyError("down")), "policy_endpoint", True),
    ],
    ids=repr,
)
def test_origin(error: BaseException, origin: str, retryable: bool) -> None:
    """The endpoint is told from a tool, and both from the phase that they failed."""
    result = failure(error, phase=RolloutErrorOrigin.GRADER)
    assert (result.origin, result.retryable) == (origin, retryable)


def test_chains_that_bite_their_tail() -> None:
    """A cause chain may be a cycle."""
    first, second = RuntimeError("first"), RuntimeError("second")
    first.__cause__, second.__cause__ = second, first
    assert error_category(first) == "agent_error"


def test_failure() -> None:
    """The result carries both and no sample of its own."""
    result = failure(PolicyError("down", status=500))
    assert result.status is RolloutStatus.FAILURE
    assert result.err_message == "the policy endpoint answered 500: down"
    assert result.err_category == "http_error"
    assert result.sample is None
    assert failure(RuntimeError()).origin is RolloutErrorOrigin.WORKFLOW
