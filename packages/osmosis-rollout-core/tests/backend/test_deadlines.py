"""Deadlines, and code that does not keep them."""

import asyncio
import time
from contextlib import suppress
from typing import Any

import pytest

from osmosis_ai.rollout import (
    AgentWorkflowContext,
    ExecutionResult,
    GraderContext,
    RolloutSample,
    RolloutStatus,
    SampleSource,
    get_rollout_context,
)

from .conftest import MakeBackend, MakeRequest

ANSWER = {"role": "assistant", "content": "4"}


async def swallow() -> list[Any]:
    """Return an answer when cancelled."""
    with suppress(asyncio.CancelledError):
        await asyncio.sleep(30)
    return [ANSWER]


async def block() -> list[Any]:
    """Hold the event loop for longer than the tests' deadlines."""
    time.sleep(0.5)  # noqa: ASYNC251 - that is the case
    return [ANSWER]


async def swallow_and_raise() -> list[Any]:
    """Turn the cancellation into another error."""
    try:
        await asyncio.sleep(30)
    except asyncio.CancelledError:
        msg = "connection closed"
        raise ValueError(msg) from None
    return [ANSWER]


async def never_end() -> list[Any]:
    """Swallow every cancellation."""
    while True:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            continue


async def obey() -> list[Any]:
    """Do what is expected."""
    await asyncio.sleep(30)
    return [ANSWER]


LATE = [swallow, block, swallow_and_raise, never_end, obey]


def timed_out(result: ExecutionResult, message: str) -> bool:
    """Tell whether a result is the timeout that says so."""
    return (
        result.status is RolloutStatus.FAILURE
        and result.err_category == "timeout"
        and (result.origin, result.retryable) == ("deadline", True)
        and (result.err_message or "").startswith(message)
        and (result.sample is None or result.sample.reward is None)
    )


class TestLate:
    """B01: late is late."""

    @pytest.mark.parametrize("late", LATE)
    async def test_b01_workflow(
        self, late: Any, make_backend: MakeBackend, make_request: MakeRequest
    ) -> None:
        """Whatever a late workflow does, the rollout timed out."""

        async def run(ctx: AgentWorkflowContext[Any]) -> list[Any]:
            return await late()

        backend = make_backend(run, limit=1)
        outcome = await backend.execute(make_request(agent_timeout_sec=0.1))
        assert timed_out(outcome.result, "workflow exceeded its 0.1s deadline")
        assert outcome.grader is None
        assert backend.health()["concurrency"] == {"max_concurrent": 1, "queued": 0, "running": 0}
        await backend.shutdown()

    @pytest.mark.parametrize("late", LATE)
    async def test_b01_b15_grader(
        self, late: Any, make_backend: MakeBackend, make_request: MakeRequest
    ) -> None:
        """So with graders; a reward that was set does not count."""

        async def run(ctx: AgentWorkflowContext[Any]) -> list[Any]:
            return [ANSWER]

        async def grade(ctx: GraderContext) -> None:
            ctx.set_reward(1)
            await late()

        backend = make_backend(run, grade, grader_limit=1)
        outcome = await backend.execute(make_request(grader_timeout_sec=0.1))
        assert outcome.workflow.status is RolloutStatus.SUCCESS
        assert timed_out(outcome.result, "grader exceeded its 0.1s deadline")
        assert outcome.result.sample is not None
        assert outcome.result.sample.messages == [ANSWER]
        await backend.shutdown()

    @pytest.mark.parametrize("limit", [0, 0.0, -1])
    async def test_b01_expired_budget(
        self, limit: float, make_backend: MakeBackend, make_request: MakeRequest
    ) -> None:
        """A budget that is spent already always times out, and the code never starts."""
        ran: list[str] = []

        async def run(ctx: AgentWorkflowContext[Any]) -> list[Any]:
            ran.append("run")
            return [ANSWER]

        async def grade(ctx: GraderContext) -> None:
            ran.append("grade")
            ctx.set_reward(1)

        backend = make_backend(run, grade)
        outcome = await backend.execute(make_request("r-1", agent_timeout_sec=limit))
        assert timed_out(outcome.result, f"workflow exceeded its {limit:g}s deadline")
        assert ran == []
        outcome = await backend.execute(make_request("r-2", grader_timeout_sec=limit))
        assert timed_out(outcome.result, f"grader exceeded its {limit:g}s deadline")
        assert ran == ["run"]

    async def test_b01_queued_time_counts(
        self, make_backend: MakeBackend, make_request: MakeRequest
    ) -> None:
        """A rollout whose budget runs out in line ends there, without a slot."""
        release = asyncio.Event()
        ran: list[Any] = []

        async def run(ctx: AgentWorkflowContext[Any]) -> list[Any]:
            ran.append(ctx.metadata)
            await release.wait()
            return [ANSWER]

        backend = make_backend(run, limit=1)
        first = asyncio.create_task(backend.execute(make_request("r-1")))
        await asyncio.sleep(0)
        outcome = await backend.execute(make_request("r-2", agent_timeout_sec=0.3, metadata={}))
        assert timed_out(outcome.result, "workflow exceeded its 0.3s deadline, 0.3s of it in the q")
        assert not first.done()
        release.set()
        assert (await first).result.status is RolloutStatus.SUCCESS
        assert ran == [None]

    async def test_b01_what_is_left_after_the_queue(
        self, make_backend: MakeBackend, make_request: MakeRequest
    ) -> None:
        """The agent has what the queue left of its budget."""

        async def run(ctx: AgentWorkflowContext[Any]) -> list[Any]:
            await asyncio.sleep(0.6)
            return [ANSWER]

        backend = make_backend(run, limit=1)
        first, second = await asyncio.gather(
            backend.execute(make_request("r-1")),
            backend.execute(make_request("r-2", agent_timeout_sec=1)),
        )
        assert first.result.status is RolloutStatus.SUCCESS
        assert timed_out(second.result, "workflow exceeded its 1s deadline, 0.")

    async def test_b10_a_blocked_loop_is_no_excuse(
        self, make_backend: MakeBackend, make_request: MakeRequest
    ) -> None:
        """A neighbour that blocks the loop makes a rollout late, and it is labelled so."""
        sleeping = asyncio.Event()

        async def run(ctx: AgentWorkflowContext[Any]) -> list[Any]:
            if ctx.metadata is None:
                await sleeping.wait()
                return await block()
            sleeping.set()
            await asyncio.sleep(0.1)
            return [ANSWER]

        backend = make_backend(run)
        blocking, late = await asyncio.gather(
            backend.execute(make_request("blocking")),
            backend.execute(make_request("late", metadata={}, agent_timeout_sec=0.4)),
        )
        assert timed_out(late.result, "workflow exceeded its 0.4s deadline")
        assert blocking.result.status is RolloutStatus.SUCCESS

    async def test_collecting_counts(
        self, make_backend: MakeBackend, make_request: MakeRequest
    ) -> None:
        """A source that does not tell in time makes the workflow late."""
        asked: list[str] = []

        class Slow(SampleSource):
            async def get_sample(self) -> RolloutSample:
                asked.append("")
                if len(asked) == 1:
                    await asyncio.sleep(30)
                return RolloutSample(messages=[ANSWER])

        async def run(ctx: AgentWorkflowContext[Any]) -> None:
            context = get_rollout_context()
            assert context is not None
            context.set_sample_source(Slow())

        outcome = await make_backend(run).execute(make_request(agent_timeout_sec=0.1))
        assert timed_out(outcome.result, "workflow exceeded its 0.1s deadline")
        assert outcome.result.sample is not None
        assert outcome.result.sample.messages == [ANSWER]

    async def test_partial_transcript_is_bounded(
        self, make_backend: MakeBackend, make_request: MakeRequest
    ) -> None:
        """A source that never tells costs two seconds."""

        class Stuck(SampleSource):
            async def get_sample(self) -> RolloutSample:
                await asyncio.sleep(30)
                raise AssertionError

        async def run(ctx: AgentWorkflowContext[Any]) -> None:
            context = get_rollout_context()
            assert context is not None
            context.set_sample_source(Stuck())

        async with asyncio.timeout(20):
            outcome = await make_backend(run).execute(make_request(agent_timeout_sec=0.1))
        assert timed_out(outcome.result, "workflow exceeded its 0.1s deadline")
        assert outcome.result.sample is None


class TestInnerTimeouts:
    """B02: a timeout of the user's own."""

    @pytest.mark.parametrize("limit", [60, None])
    async def test_b02_is_not_the_deadline(
        self, limit: float | None, make_backend: MakeBackend, make_request: MakeRequest
    ) -> None:
        """It keeps its text."""

        async def run(ctx: AgentWorkflowContext[Any]) -> None:
            msg = "search api"
            raise TimeoutError(msg)

        outcome = await make_backend(run).execute(make_request(agent_timeout_sec=limit))
        assert outcome.result.err_category == "timeout"
        assert outcome.result.err_message == "search api"

    async def test_b02_asyncio_timeout_in_the_agent(
        self, make_backend: MakeBackend, make_request: MakeRequest
    ) -> None:
        """asyncio's own timeouts work inside of a rollout."""

        async def run(ctx: AgentWorkflowContext[Any]) -> None:
            async with asyncio.timeout(0.01):
                await asyncio.sleep(30)

        outcome = await make_backend(run).execute(make_request(agent_timeout_sec=60))
        assert outcome.result.err_category == "timeout"
        assert outcome.result.err_message == "TimeoutError"
