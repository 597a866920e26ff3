"""Backends made of plain functions."""

import asyncio
import selectors
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import pytest

from osmosis_ai.rollout import (
    AgentWorkflow,
    AgentWorkflowConfig,
    AgentWorkflowContext,
    ConcurrencyConfig,
    ExecutionRequest,
    Grader,
    GraderConfig,
    GraderContext,
    LocalBackend,
)

type Run = Callable[[AgentWorkflowContext[Any]], Awaitable[Any]]
type Grade = Callable[[GraderContext], Awaitable[Any]]


class MakeBackend(Protocol):
    """Builds a backend whose workflow and grader call the functions."""

    def __call__(
        self,
        run: Run,
        grade: Grade | None = None,
        *,
        limit: int | None = None,
        grader_limit: int | None = None,
        depth: int | None = None,
    ) -> LocalBackend: ...


@pytest.fixture
def make_backend(artifact_root: object) -> MakeBackend:
    """Return what builds a backend from functions."""
    return _make_backend


def _make_backend(
    run: Run,
    grade: Grade | None = None,
    *,
    limit: int | None = None,
    grader_limit: int | None = None,
    depth: int | None = None,
) -> LocalBackend:
    class FunctionWorkflow(AgentWorkflow[AgentWorkflowConfig]):
        async def run(self, ctx: AgentWorkflowContext[AgentWorkflowConfig]) -> Any:
            return await run(ctx)

    class FunctionGrader(Grader):
        async def grade(self, ctx: GraderContext) -> Any:
            assert grade is not None
            return await grade(ctx)

    concurrency = ConcurrencyConfig(max_concurrent=limit)
    grader_config = GraderConfig(
        name="g", concurrency=ConcurrencyConfig(max_concurrent=grader_limit)
    )
    return LocalBackend(
        workflow=FunctionWorkflow,
        workflow_config=AgentWorkflowConfig(name="w", concurrency=concurrency),
        grader=None if grade is None else FunctionGrader,
        grader_config=None if grade is None else grader_config,
        max_queue_depth=depth,
    )


class MakeRequest(Protocol):
    """Builds a request for `2+2?` with label `4`; keyword arguments replace its fields."""

    def __call__(self, rollout_id: str = "r-1", **fields: Any) -> ExecutionRequest: ...


@pytest.fixture
def make_request() -> MakeRequest:
    """Return what builds requests."""

    def make(rollout_id: str = "r-1", **fields: Any) -> ExecutionRequest:
        prompt = [{"role": "user", "content": "2+2?"}]
        given: dict[str, Any] = {"id": rollout_id, "prompt": prompt, "label": "4"}
        return ExecutionRequest(**(given | fields))

    return make


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait until the condition holds; the test's own timeout ends it if it never does."""
    while not condition():  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0.01)


class InstantLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer instead of waiting for it."""

    def __init__(self) -> None:
        self.skipped = 0.0
        super().__init__(InstantSelector(self._skip))

    def time(self) -> float:
        """The loop's own time."""
        return self.skipped

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Wait for the threads: a limit would have passed at once."""
        await super().shutdown_default_executor(None)

    def _skip(self, seconds: float) -> None:
        self.skipped += seconds


class InstantSelector(selectors.DefaultSelector):
    """Skips the time that it is told to wait, unless something happens."""

    def __init__(self, skip: Callable[[float], None]) -> None:
        super().__init__()
        self._skip_time = skip

    def select(self, timeout: float | None = None) -> Any:
        """Wait for real only where no timer runs."""
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        events = super().select(0)
        if not events:
            self._skip_time(timeout)
        return events
