"""Cancellation from outside, and code that ignores it."""

import asyncio
import gc
import time
from typing import Any

import pytest

from osmosis_ai.rollout import (
    AgentWorkflowContext,
    ExecutionOutcome,
    GraderContext,
    LocalBackend,
    RolloutSample,
    RolloutStatus,
    SampleSource,
    get_rollout_context,
)

from .conftest import InstantLoop, MakeBackend, MakeRequest, eventually

ANSWER = {"role": "assistant", "content": "4"}
IDLE = {"queued": 0, "running": 0}


def load(backend: LocalBackend) -> dict[str, int]:
    """Return what health tells of rollouts."""
    concurrency = backend.health()["concurrency"]
    return {"queued": concurrency["queued"], "running": concurrency["running"]}


class Source(SampleSource):
    """Tells one message."""

    async def get_sample(self) -> RolloutSample:
        """Tell it."""
        return RolloutSample(messages=[ANSWER])


class TestCancelRollouts:
    """The backend's own cancellation ends in an outcome."""

    async def test_dispositions(self, make_backend: MakeBackend, make_request: MakeRequest) -> None:
        """Queued and running rollouts are told apart; those that ended are not found."""
        running = asyncio.Event()

        async def run(ctx: AgentWorkflowContext[Any]) -> None:
            context = get_rollout_context()
            assert context is not None
            context.set_sample_source(Source())
            running.set()
            await asyncio.sleep(30)

        backend = make_backend(run, limit=1)
        tasks = [asyncio.create_task(backend.execute(make_request(name))) for name in ("a", "b")]
        await running.wait()
        assert load(backend) == {"queued": 1, "running": 1}
        assert backend.rollout_status("b") == {"status": "queued"}
        assert backend.cancel_rollouts(ids=["b", "a", "c", "b"]) == {
            "b": "cancelled_queued",
            "a": "cancelled_running",
            "c": "not_found",
        }
        first, second = await asyncio.gather(*tasks)
        assert first.result.status is second.result.status is RolloutStatus.CANCELLED
        assert first.result.sample is not None
        assert first.result.sample.messages == [ANSWER]
        assert second.result.sample is None
        assert first.grader is second.grader is None
        assert load(backend) == IDLE
        assert backend.cancel_rollouts(ids=["a"]) == {"a": "not_found"}

    @pytest.mark.parametrize(
        ("chosen", "cancelled"),
        [
            ({"prefix": "run-"}, {"run-1", "run-2"}),
            ({"all": True}, {"run-1", "run-2", "other"}),
            ({"prefix": ""}, set[str]()),
            ({"ids": []}, set[str]()),
            ({}, set[str]()),
        ],
    )
    async def test_choices(
        self,
        chosen: dict[str, Any],
        cancelled: set[str],
        make_backend: MakeBackend,
        make_request: MakeRequest,
    ) -> None:
        """By prefix, all, or none."""

        async def run(ctx: AgentWorkflowContext[Any]) -> None:
            await asyncio.sleep(30)

        backend = make_backend(run)
        names = ["run-1", "run-2", "other"]
        tasks = [asyncio.create_task(backend.execute(make_request(name))) for name in names]
        await asyncio.sleep(0)
        assert set(backend.cancel_rollouts(**chosen)) == cancelled
        backend.cancel_rollouts(all=True)
        assert [outcome.result.status for outcome in await asyncio.gather(*tasks)] == [
            "cancelled"
        ] * 3

    async def test_while_grading(
        self, make_backend: MakeBackend, make_request: MakeRequest
    ) -> None:
        """The workflow's result stays, the rollout is cancelled, a reward set so far is void."""
        grading = asyncio.Event()

        async def run(ctx: AgentWorkflowContext[Any]) -> list[Any]:
            return [ANSWER]

        async def grade(ctx: GraderContext) -> None:
            ctx.set_reward(1)
            grading.set()
            await asyncio.sleep(30)

        backend = make_backend(run, grade, grader_limit=1)
        tasks = [asyncio.create_task(backend.execute(make_request(name))) for name in ("a", "b")]
        await grading.wait()
        # One is grading, the other one waits for the grader's slot (or will in a moment).
        assert set(backend.cancel_rollouts(all=True).values()) == {"cancelled_running"}
        for outcome in await asyncio.gather(*tasks):
            assert outcome.result.status is RolloutStatus.CANCELLED
            assert outcome.result.origin == "cancelled"
            assert outcome.result.sample is None or outcome.result.sample.reward is None
        assert load(backend) == IDLE

    async def test_beats_a_result_of_the_same_moment(
        self, make_backend: MakeBackend, make_request: MakeRequest
    ) -> None:
        """Who was told that a rollout is cancelled never sees it succeed."""

        async def run(ctx: AgentWorkflowContext[Any]) -> list[Any]:
            assert backend.cancel_rollouts(ids=["r-1"]) == {"r-1": "cancelled_running"}
            return [ANSWER]

        backend = make_backend(run)
        outcome = await backend.execute(make_request())
        assert outcome.result.status is RolloutStatus.CANCELLED

    async def test_b18_stubborn_code(
        self,
        make_backend: MakeBackend,
        make_request: MakeRequest,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """The rollout ends without it; its id stays taken until the code has ended, and what it
        returns then is dropped with a log line."""
        running, release = asyncio.Event(), asyncio.Event()

        async def run(ctx: AgentWorkflowContext[Any]) -> list[Any]:
            running.set()
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    continue
            return [ANSWER]

        backend = make_backend(run, limit=1)
        execution = asyncio.create_task(backend.execute(make_request()))
        await running.wait()
        backend.cancel_rollouts(ids=["r-1"])
        assert (await execution).result.status is RolloutStatus.CANCELLED
        assert load(backend) == IDLE
        assert backend.rollout_status("r-1") is None
        with pytest.raises(ValueError, match="r-1 is in use"):
            await backend.execute(make_request())
        gc.collect()
        release.set()
        await eventually(lambda: "its result is dropped" in caplog.text)
        assert (await backend.execute(make_request())).result.status is RolloutStatus.SUCCESS

    async def test_shutdown_ends_everything(
        self, make_backend: MakeBackend, make_request: MakeRequest
    ) -> None:
        """Running, queued and stubborn rollouts alike."""
        running = asyncio.Event()
        ended: list[str] = []

        async def run(ctx: AgentWorkflowContext[Any]) -> None:
            try:
                while True:
                    running.set()
                    try:
                        await asyncio.sleep(30)
                    except asyncio.CancelledError:
                        continue
            finally:
                ended.append("")

        backend = make_backend(run, limit=1)
        tasks = [asyncio.create_task(backend.execute(make_request(name))) for name in ("a", "b")]
        await running.wait()
        await backend.shutdown()
        assert [outcome.result.status for outcome in await asyncio.gather(*tasks)] == [
            "cancelled",
            "cancelled",
        ]
        assert ended == [""]
        await backend.shutdown()

    def test_stubborn_code_does_not_hold_up_the_end_of_the_loop(
        self, make_backend: MakeBackend, make_request: MakeRequest
    ) -> None:
        """asyncio.run() cancels what is left and waits for it, which must come to an end."""

        async def run(ctx: AgentWorkflowContext[Any]) -> None:
            while True:
                try:
                    await asyncio.sleep(30)
                except (Exception, asyncio.CancelledError):
                    continue

        async def main() -> ExecutionOutcome:
            return await make_backend(run).execute(make_request(agent_timeout_sec=0.1))

        assert asyncio.run(main()).result.err_category == "timeout"


class TestTaskCancel:
    """B03: cancelling the task that executes is passed on."""

    @pytest.mark.parametrize("where", ["queue", "run", "grade", "grader's queue"])
    async def test_b03_propagates(
        self, where: str, make_backend: MakeBackend, make_request: MakeRequest
    ) -> None:
        """CancelledError comes out, the user's code has unwound, the slots are free."""
        inside = asyncio.Event()
        unwound: list[str] = []

        async def wait() -> None:
            inside.set()
            try:
                await asyncio.sleep(30)
            finally:
                unwound.append("")

        async def run(ctx: AgentWorkflowContext[Any]) -> list[Any]:
            if where in {"queue", "run"}:
                await wait()
            return [ANSWER]

        async def grade(ctx: GraderContext) -> None:
            await wait()

        backend = make_backend(run, grade, limit=1 if where == "queue" else 2, grader_limit=1)
        names = ["first", "second"] if "queue" in where else ["first"]
        tasks = [asyncio.create_task(backend.execute(make_request(name))) for name in names]
        await inside.wait()
        if where == "grader's queue":
            await eventually(lambda: backend.rollout_status("second") == {"status": "grading"})
        for task in reversed(tasks):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert unwound == [""]
        assert load(backend) == IDLE
        assert backend.cancel_rollouts(all=True) == {}

    async def test_b03_stubborn_code(
        self, make_backend: MakeBackend, make_request: MakeRequest
    ) -> None:
        """It is left behind; a second cancellation does not wait for it any longer."""
        running = asyncio.Event()

        async def run(ctx: AgentWorkflowContext[Any]) -> None:
            running.set()
            while True:
                try:
                    await asyncio.sleep(30)
                except asyncio.CancelledError:
                    continue

        backend = make_backend(run)
        task = asyncio.create_task(backend.execute(make_request()))
        await running.wait()
        task.cancel()
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert load(backend) == IDLE
        await backend.shutdown()

    @pytest.mark.parametrize("offset", [-1e-9, 0])
    @pytest.mark.parametrize("how", ["task", "backend"])
    def test_b03_in_the_tick_of_the_deadline(
        self, offset: float, how: str, make_backend: MakeBackend, make_request: MakeRequest
    ) -> None:
        """The cancellation counts, not the deadline, and the slot is free."""

        async def main() -> None:
            loop = asyncio.get_running_loop()

            async def run(ctx: AgentWorkflowContext[Any]) -> None:
                loop.call_at(loop.time() + 1 + offset, cancel)
                await asyncio.sleep(30)

            def cancel() -> None:
                if how == "task":
                    execution.cancel()
                else:
                    assert backend.cancel_rollouts(all=True) == {"r-1": "cancelled_running"}

            backend = make_backend(run, limit=1)
            execution = asyncio.create_task(backend.execute(make_request(agent_timeout_sec=1)))
            if how == "task":
                with pytest.raises(asyncio.CancelledError):
                    await execution
            else:
                assert (await execution).result.status is RolloutStatus.CANCELLED
            assert load(backend) == IDLE

        with asyncio.Runner(loop_factory=InstantLoop) as runner:
            runner.run(main())


class TestReferences:
    """B20: nothing is lost to the garbage collector."""

    async def test_b20_collected_while_running(
        self, make_backend: MakeBackend, make_request: MakeRequest
    ) -> None:
        """200 rollouts that wait for futures only they know survive collections."""
        waiting: list[None] = []
        woken = asyncio.Event()

        async def run(ctx: AgentWorkflowContext[Any]) -> list[Any]:
            waiting.append(None)
            await asyncio.create_task(woken.wait())
            if (ctx.metadata or {}).get("exit"):
                raise SystemExit
            return [ANSWER]

        backend = make_backend(run)
        execution = asyncio.gather(
            *(
                backend.execute(make_request(f"r-{n}", metadata={"exit": n == 7}))
                for n in range(200)
            )
        )
        limit = time.monotonic() + 30
        while len(waiting) < 200 and time.monotonic() < limit:
            gc.collect()
            await asyncio.sleep(0)
        woken.set()
        statuses = [outcome.result.status for outcome in await execution]
        assert statuses.count(RolloutStatus.SUCCESS) == 199
        assert statuses[7] is RolloutStatus.FAILURE
