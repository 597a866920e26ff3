"""Contexts: what is active where, what the environment gives, and the inputs of user code."""

import asyncio
import contextvars
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from osmosis_ai.rollout import (
    AgentWorkflowConfig,
    AgentWorkflowContext,
    GraderContext,
    RolloutContext,
    RolloutSample,
    SampleSource,
    get_rollout_context,
)

URL = "http://policy.test/v1"
ENVIRONMENT = {
    "OSMOSIS_CHAT_COMPLETIONS_URL": "http://env.test/v1",
    "OSMOSIS_API_KEY": "env-key",
    "OSMOSIS_ROLLOUT_ID": "env-id",
}


class Source(SampleSource):
    async def get_sample(self) -> RolloutSample:
        return RolloutSample(messages=[{"role": "user", "content": "hi"}])


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


def active_id() -> str | None:
    context = get_rollout_context()
    return context.rollout_id if context else None


class TestEnvironment:
    @pytest.mark.usefixtures("environment")
    def test_a_context_without_values_reads_all_three(self) -> None:
        context = RolloutContext()
        assert context.chat_completions_url == "http://env.test/v1"
        assert context.api_key == "env-key"
        assert context.rollout_id == "env-id"

    @pytest.mark.usefixtures("environment")
    def test_a_context_with_a_url_reads_none_of_them(self) -> None:
        """A server's rollout never gets the key of the host that it runs on."""
        context = RolloutContext(chat_completions_url=URL)
        assert (context.chat_completions_url, context.api_key, context.rollout_id) == (
            URL,
            None,
            "",
        )

    @pytest.mark.usefixtures("environment")
    def test_given_values_win_over_the_environment(self) -> None:
        context = RolloutContext(api_key="mine", rollout_id="r-1")
        assert context.chat_completions_url == "http://env.test/v1"
        assert (context.api_key, context.rollout_id) == ("mine", "r-1")

    def test_an_empty_environment_leaves_the_defaults(self) -> None:
        context = RolloutContext()
        assert (context.chat_completions_url, context.api_key, context.rollout_id) == ("", None, "")

    @pytest.mark.usefixtures("environment")
    def test_an_empty_key_in_the_environment_is_no_key(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("OSMOSIS_API_KEY", "")
        assert RolloutContext().api_key is None


class TestActive:
    def test_no_context_is_active_outside(self) -> None:
        assert get_rollout_context() is None

    def test_leaving_restores_the_outer_context(self) -> None:
        outer, inner = RolloutContext(URL), RolloutContext(URL)
        with outer as entered:
            assert entered is outer
            with inner:
                assert get_rollout_context() is inner
                with outer:
                    assert get_rollout_context() is outer
                assert get_rollout_context() is inner
            assert get_rollout_context() is outer
        assert get_rollout_context() is None

    def test_an_error_passes_and_the_outer_context_is_restored(self) -> None:
        with pytest.raises(ZeroDivisionError), RolloutContext(URL):
            _ = 1 / 0
        assert get_rollout_context() is None

    def test_the_key_is_not_in_the_repr(self) -> None:
        assert "sek-ret" not in repr(RolloutContext(URL, "sek-ret", "r-1"))

    async def test_b04_threads_and_tasks_see_their_own_rollout_or_none(self) -> None:
        """Eight rollouts at once; what did not inherit a context has none, never another's."""
        started = asyncio.Barrier(8)

        async def rollout(name: str) -> None:
            with RolloutContext(URL, rollout_id=name):
                await started.wait()
                assert await asyncio.to_thread(active_id) == name
                assert await asyncio.create_task(child()) == name
                loop = asyncio.get_running_loop()
                assert await loop.run_in_executor(None, active_id) is None
                assert await asyncio.to_thread(in_raw_thread) is None
                assert active_id() == name

        async def child() -> str | None:
            await asyncio.sleep(0)
            return active_id()

        def in_raw_thread() -> str | None:
            seen: list[str | None] = []
            thread = threading.Thread(target=lambda: seen.append(active_id()))
            thread.start()
            thread.join()
            return seen[0]

        async with asyncio.TaskGroup() as group:
            for number in range(8):
                group.create_task(rollout(f"r-{number}"))
        assert get_rollout_context() is None

    def test_what_belongs_to_a_context_is_used_inside_of_it(self) -> None:
        context = RolloutContext(URL, rollout_id="r-1")
        with pytest.raises(RuntimeError, match=r"this agent .*'r-1'.* outside of every rollout"):
            context.check_active("agent")
        with RolloutContext(URL), pytest.raises(RuntimeError, match="or by the grader"):
            context.check_active("agent")
        with context:
            context.check_active("agent")


class TestLeavingElsewhere:
    async def test_in_a_task_that_was_started_inside(self) -> None:
        """The result of that task is its own, and the outer context is active there again."""
        outer, inner = RolloutContext(URL), RolloutContext(URL)

        async def leave() -> RolloutContext | None:
            inner.__exit__(None, None, None)
            return get_rollout_context()

        with outer:
            inner.__enter__()
            assert await asyncio.create_task(leave()) is outer

    async def test_in_a_task_that_never_saw_it(self) -> None:
        context = RolloutContext(URL)
        contextvars.copy_context().run(context.__enter__)
        with RolloutContext(URL) as own:
            context.__exit__(None, None, None)
            assert get_rollout_context() is own

    async def test_an_async_generator_that_another_task_closes(self) -> None:
        @asynccontextmanager
        async def rollout() -> AsyncGenerator[RolloutContext]:
            with RolloutContext(URL) as context:
                yield context

        opened = rollout()
        await asyncio.create_task(opened.__aenter__())
        await opened.__aexit__(None, None, None)
        assert get_rollout_context() is None

    async def test_two_tasks_inside_the_same_context(self) -> None:
        """Each leaves it in its own turn and gets its own outer context back."""
        shared = RolloutContext(URL, rollout_id="shared")
        both_inside = asyncio.Barrier(2)
        first_left = asyncio.Event()

        async def enter(name: str, *, first: bool) -> None:
            with RolloutContext(URL, rollout_id=name):
                with shared:
                    await both_inside.wait()
                    if not first:
                        await first_left.wait()
                    assert active_id() == "shared"
                assert active_id() == name
                first_left.set()

        async with asyncio.TaskGroup() as group:
            group.create_task(enter("a", first=True))
            group.create_task(enter("b", first=False))


class TestSampleSources:
    async def test_the_registered_source_gives_the_sample(self) -> None:
        context = RolloutContext(URL)
        assert await context.get_sample() is None
        context.set_sample_source(Source())
        sample = await context.get_sample()
        assert sample is not None
        assert sample.messages == [{"role": "user", "content": "hi"}]

    def test_a_second_source_is_refused_by_name(self) -> None:
        context = RolloutContext(URL, None, "", Source())
        with pytest.raises(ValueError, match=r"sample source \(Source\).*per rollout"):
            context.set_sample_source(Source())


class TestInputs:
    def test_fields_can_be_given_by_position(self, tmp_path: Path) -> None:
        config = AgentWorkflowConfig(name="x")
        workflow: AgentWorkflowContext[Any] = AgentWorkflowContext([], config, {"k": 1}, tmp_path)
        assert (workflow.prompt, workflow.config) == ([], config)
        assert (workflow.metadata, workflow.artifacts_dir) == ({"k": 1}, tmp_path)
        sample = RolloutSample()
        grader = GraderContext("4", sample, "/project", {"k": 1}, tmp_path)
        assert (grader.label, grader.sample, grader.project_path) == ("4", sample, "/project")
        assert (grader.metadata, grader.artifacts_dir) == ({"k": 1}, tmp_path)

    def test_everything_but_the_prompt_has_a_default(self) -> None:
        workflow: AgentWorkflowContext[Any] = AgentWorkflowContext(prompt=[])
        assert (workflow.config, workflow.metadata, workflow.artifacts_dir) == (None, None, None)
        assert GraderContext() == GraderContext(None, None, None, None, None)

    def test_a_reward_needs_a_sample(self) -> None:
        with pytest.raises(ValueError, match="no sample"):
            GraderContext().set_reward(1.0)

    def test_the_last_reward_counts(self) -> None:
        context = GraderContext(sample=RolloutSample())
        for reward in (0.5, None, 1):
            context.set_reward(reward)
        assert context.sample is not None
        assert context.sample.reward == 1.0

    def test_a_refused_reward_says_why_and_leaves_the_last_one(self) -> None:
        context = GraderContext(sample=RolloutSample(reward=0.5))
        with pytest.raises(ValidationError, match="finite"):
            context.set_reward(float("nan"))
        assert context.sample is not None
        assert context.sample.reward == 0.5
