"""Calls to the policy by code that outlives its phase: they end with the phase."""

import asyncio
from collections.abc import Iterator
from typing import Any, override

import pytest

import osmosis_ai.rollout.policy.transport  # noqa: F401 - its import is not part of a deadline
from osmosis_ai.rollout import (
    AgentWorkflowContext,
    GraderContext,
    RolloutContext,
    RolloutSample,
    RolloutStatus,
    SampleSource,
    get_rollout_context,
)
from osmosis_ai.rollout.policy import PolicyClient, RolloutEndedError
from osmosis_ai.rollout.testing import Gate, ScriptedPolicy, reply

from .conftest import MakeBackend, MakeRequest

USER = {"role": "user", "content": "2+2?"}
ANSWER = {"role": "assistant", "content": "4"}


@pytest.fixture
def gate() -> Gate:
    """What the policy's first answer waits for in its middle."""
    return Gate()


@pytest.fixture
def policy(gate: Gate) -> Iterator[ScriptedPolicy]:
    """A policy that stops in the middle of its first answer."""
    with ScriptedPolicy(reply(["never ", "ends"]).insert(1, gate)) as policy:
        yield policy


class Stray:
    """A thread that calls the policy until it is told to stop."""

    def __init__(self) -> None:
        self.error: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()

    def start(self) -> "asyncio.Future[None]":
        """Start it, from inside of a rollout."""
        loop = asyncio.get_running_loop()

        def call() -> None:
            try:
                while True:
                    asyncio.run(complete())
            except Exception as error:
                loop.call_soon_threadsafe(self.error.set_result, error)

        return asyncio.ensure_future(asyncio.to_thread(call))


async def complete() -> None:
    """Call the active rollout's policy."""
    await PolicyClient().complete([USER])


@pytest.mark.parametrize("ending", ["deadline", "cancel", "cancelled task", "return", "raise"])
async def test_a_thread_that_the_workflow_leaves_behind(
    ending: str,
    make_backend: MakeBackend,
    make_request: MakeRequest,
    policy: ScriptedPolicy,
    gate: Gate,
) -> None:
    """However the workflow ends, the policy sees the connection close and no further request."""
    stray = Stray()

    async def run(ctx: AgentWorkflowContext[Any]) -> list[Any]:
        thread = stray.start()
        await asyncio.to_thread(gate.wait)
        if ending == "return":
            return [ANSWER]
        if ending == "raise":
            raise RuntimeError
        arrived.set()
        await thread
        raise AssertionError

    arrived = asyncio.Event()
    backend = make_backend(run)
    limit = 5.0 if ending == "deadline" else None
    with RolloutContext(policy.url):
        executing = asyncio.create_task(backend.execute(make_request(agent_timeout_sec=limit)))
        if ending.startswith("cancel"):
            await arrived.wait()
            _ = executing.cancel() if ending != "cancel" else backend.cancel_rollouts(all=True)
        await asyncio.wait([executing])
        assert await asyncio.to_thread(policy.requests[0].wait) == "disconnected"
        assert isinstance(await stray.error, RolloutEndedError)
        assert len(policy.requests) == 1


async def test_code_that_ignores_its_cancellation(
    make_backend: MakeBackend, make_request: MakeRequest, policy: ScriptedPolicy
) -> None:
    """It is still inside its context, and calls nobody any more."""
    told: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()

    async def run(ctx: AgentWorkflowContext[Any]) -> None:
        while not told.done():
            try:
                await complete()
            except asyncio.CancelledError:
                await ended.wait()
            except Exception as error:
                told.set_result(error)

    ended = asyncio.Event()
    with RolloutContext(policy.url):
        outcome = await make_backend(run).execute(make_request(agent_timeout_sec=5.0))
        assert outcome.result.err_category == "timeout"
        ended.set()
        assert isinstance(await told, RolloutEndedError)
        assert len(policy.requests) == 1


async def test_graders_call_the_policy(
    make_backend: MakeBackend, make_request: MakeRequest, policy: ScriptedPolicy, gate: Gate
) -> None:
    """The workflow's end is not theirs, and theirs ends what they leave behind."""
    stray = Stray()

    async def run(ctx: AgentWorkflowContext[Any]) -> list[Any]:
        return [ANSWER]

    async def grade(ctx: GraderContext) -> None:
        stray.start()
        await asyncio.to_thread(gate.wait)
        verdict = await PolicyClient().complete([USER])
        ctx.set_reward(float(verdict.text))

    policy.add("0.5")
    with RolloutContext(policy.url):
        outcome = await make_backend(run, grade).execute(make_request())
        assert outcome.result.sample is not None
        assert outcome.result.sample.reward == 0.5
        assert await asyncio.to_thread(policy.requests[0].wait) == "disconnected"
        assert isinstance(await stray.error, RolloutEndedError)


class Calling(SampleSource):
    """Tells what a call to the policy said that was begun before."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._call = asyncio.create_task(complete())

    @override
    async def get_sample(self) -> RolloutSample:
        await asyncio.to_thread(self._gate.wait)
        self._gate.open()
        await self._call
        return RolloutSample(messages=[ANSWER])


async def test_collecting_the_sample_is_part_of_the_workflow(
    make_backend: MakeBackend, make_request: MakeRequest, policy: ScriptedPolicy, gate: Gate
) -> None:
    """A call that run() left under way may end while its source is asked."""

    async def run(ctx: AgentWorkflowContext[Any]) -> None:
        context = get_rollout_context()
        assert context is not None
        context.set_sample_source(Calling(gate))

    with RolloutContext(policy.url):
        outcome = await make_backend(run).execute(make_request())
    assert outcome.result.status is RolloutStatus.SUCCESS, outcome.result.err_message
    assert outcome.result.sample is not None
