"""What a failure is called and what it says: one rule for every backend."""

from collections import deque
from collections.abc import Iterator
from typing import cast

from osmosis_ai.rollout.agent_workflow import ToolError
from osmosis_ai.rollout.policy import PolicyError
from osmosis_ai.rollout.types.execution import (
    ExecutionResult,
    RolloutErrorCategory,
    RolloutErrorOrigin,
    RolloutStatus,
)
from osmosis_ai.rollout.types.sample import RolloutSample

_KNOWN = (PolicyError, TimeoutError, ValueError, TypeError, AssertionError)


def failure(
    error: BaseException,
    *,
    phase: RolloutErrorOrigin = RolloutErrorOrigin.WORKFLOW,
    sample: RolloutSample | None = None,
) -> ExecutionResult:
    """Return the result of a phase that ended with `error`.

    Args:
        error: What was raised.
        phase: Where it came from unless the error itself tells: the workflow or the grader.
        sample: What there is of the conversation; it must carry no reward.
    """
    return ExecutionResult(
        status=RolloutStatus.FAILURE,
        sample=sample,
        err_message=error_message(error),
        err_category=error_category(error),
        origin=_origin(error) or phase,
        retryable=_may_pass(_deciding(error)),
    )


def error_category(error: BaseException) -> RolloutErrorCategory:
    """Tell what kind of failure an exception is.

    Frameworks wrap what happened, so the first known exception among `error`, the members of
    exception groups and the causes (`raise ... from`) decides; without one it is `AGENT_ERROR`.
    """
    match _deciding(error):
        case PolicyError(is_endpoint_failure=True):
            return RolloutErrorCategory.HTTP_ERROR
        case PolicyError():
            return RolloutErrorCategory.AGENT_ERROR
        case TimeoutError():
            return RolloutErrorCategory.TIMEOUT
        case ValueError() | TypeError() | AssertionError():
            return RolloutErrorCategory.VALIDATION_ERROR
        case _:
            return RolloutErrorCategory.AGENT_ERROR


def _origin(error: BaseException) -> RolloutErrorOrigin | None:
    if isinstance(_deciding(error), PolicyError):
        return RolloutErrorOrigin.POLICY_ENDPOINT
    by_tool = any(isinstance(link, ToolError) for link in _unwrapped(error))
    return RolloutErrorOrigin.TOOL if by_tool else None


def _may_pass(deciding: BaseException) -> bool:
    if isinstance(deciding, PolicyError):
        return deciding.is_endpoint_failure
    return isinstance(deciding, TimeoutError | ConnectionError)


def error_message(error: BaseException) -> str:
    """Return what an exception says, or the name of its type when it says nothing.

    What the policy's endpoint said, and what happened inside a group, is added where it is not
    repeated.
    """
    text = _text(error)
    deciding = _deciding(error)
    said = deciding.message if isinstance(deciding, PolicyError) else _text(deciding)
    added = isinstance(deciding, PolicyError) or isinstance(error, BaseExceptionGroup)
    return f"{text}: {_text(deciding)}" if added and said not in text else text


def _deciding(error: BaseException) -> BaseException:
    links = list(_unwrapped(error))
    plain = [link for link in links if not isinstance(link, BaseExceptionGroup)]
    return next((link for link in links if isinstance(link, _KNOWN)), plain[0])


def _unwrapped(error: BaseException) -> Iterator[BaseException]:
    waiting, seen = deque([error]), set[int]()
    while waiting:
        link = waiting.popleft()
        if id(link) in seen:
            continue
        seen.add(id(link))
        yield link
        if isinstance(link, BaseExceptionGroup):
            waiting.extend(cast("BaseExceptionGroup[BaseException]", link).exceptions)
        if link.__cause__ is not None:
            waiting.append(link.__cause__)


def _text(error: BaseException) -> str:
    try:
        return str(error) or type(error).__name__
    except BaseException:  # a user's own __str__ may raise anything, a panic of its library too
        return type(error).__name__
