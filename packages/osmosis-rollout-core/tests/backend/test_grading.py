"""When a rollout is graded, and what counts as a reward."""

from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from osmosis_ai.rollout import (
    AgentWorkflowContext,
    AgentWorkflowOutput,
    GraderContext,
    RolloutSample,
    RolloutStatus,
    SampleSource,
    get_rollout_context,
)
from osmosis_ai.rollout.policy import PolicyError

from .conftest import MakeBackend, MakeRequest

ANSWER = {"role": "assistant", "content": "4"}


async def answer(ctx: AgentWorkflowContext[Any]) -> list[Any]:
    """The workflow of most tests."""
    return [ANSWER]


async def full_marks(ctx: GraderContext) -> None:
    """The grader of some tests."""
    ctx.set_reward(1)


class TestWhen:
    """Who is graded."""

    @pytest.mark.parametrize(
        ("fields", "skipped"),
        [
            ({"label": "4"}, None),
            ({"label": ""}, None),
            ({"label": None}, "the request has neither a label nor metadata"),
            ({"label": None, "metadata": {}}, None),
            ({"label": "4", "grade": False}, "the request asked for no grading"),
        ],
    )
    async def test_label_or_metadata(
        self,
        fields: dict[str, Any],
        skipped: str | None,
        make_backend: MakeBackend,
        make_request: MakeRequest,
    ) -> None:
        """Grading takes something to grade by, an empty string or object included."""
        outcome = await make_backend(answer, full_marks).execute(make_request(**fields))
        assert (outcome.grader is None) == (skipped is not None)
        assert outcome.grading_skipped == skipped
        assert outcome.result.status is RolloutStatus.SUCCESS

    async def test_failed_workflows_are_not(
        self, make_backend: MakeBackend, make_request: MakeRequest
    ) -> None:
        """A failure earns no reward."""

        async def run(ctx: AgentWorkflowContext[Any]) -> None:
            raise RuntimeError

        outcome = await make_backend(run, full_marks).execute(make_request())
        assert outcome.grader is None
        assert outcome.result.status is RolloutStatus.FAILURE

    async def test_the_label_is_the_graders(
        self, make_backend: MakeBackend, make_request: MakeRequest
    ) -> None:
        """The workflow never sees it."""
        seen: list[Any] = []

        async def run(ctx: AgentWorkflowContext[Any]) -> list[Any]:
            seen.append("secret" in repr(vars(ctx)))
            return [ANSWER]

        async def grade(ctx: GraderContext) -> None:
            seen.append(ctx.label)
            ctx.set_reward(0)

        await make_backend(run, grade).execute(make_request(label="secret"))
        assert seen == [False, "secret"]


class TestVerdict:
    """B08: what a grading must leave behind."""

    @pytest.mark.parametrize("reward", [0, 1, -2.5, True])
    async def test_rewards(
        self, reward: Any, make_backend: MakeBackend, make_request: MakeRequest
    ) -> None:
        """The last reward that was set counts; 0 is one too."""

        async def grade(ctx: GraderContext) -> None:
            ctx.set_reward(7)
            ctx.set_reward(reward)

        outcome = await make_backend(answer, grade).execute(make_request())
        assert outcome.result.status is RolloutStatus.SUCCESS
        assert outcome.result.sample is not None
        assert outcome.result.sample.reward == float(reward)

    @pytest.mark.parametrize(
        ("returned", "rewards", "message"),
        [
            (1.0, [], "the float that grade() returned is ignored"),
            (None, [], "the grader set no reward: call ctx.set_reward()"),
            (None, [1.0, None], "the grader set no reward"),
        ],
        ids=["returns it", "sets nothing", "takes it back"],
    )
    async def test_b08_no_reward(
        self,
        returned: object,
        rewards: list[float | None],
        message: str,
        make_backend: MakeBackend,
        make_request: MakeRequest,
    ) -> None:
        """A grading without a reward is a failure that says so."""

        async def grade(ctx: GraderContext) -> object:
            for reward in rewards:
                ctx.set_reward(reward)
            return returned

        outcome = await make_backend(answer, grade).execute(make_request())
        assert outcome.result.status is RolloutStatus.FAILURE
        assert outcome.result.err_category == "validation_error"
        assert message in (outcome.result.err_message or "")

    @pytest.mark.parametrize("sets", [True, False])
    async def test_b08_no_sample(
        self, sets: bool, make_backend: MakeBackend, make_request: MakeRequest
    ) -> None:
        """Without a sample there is nothing to reward, whatever the grader does."""

        async def run(ctx: AgentWorkflowContext[Any]) -> AgentWorkflowOutput:
            return AgentWorkflowOutput(metrics={"steps": 1.0})

        async def grade(ctx: GraderContext) -> None:
            if sets:
                ctx.set_reward(1)

        outcome = await make_backend(run, grade).execute(make_request())
        assert outcome.result.status is RolloutStatus.FAILURE
        assert outcome.result.err_category == "validation_error"
        assert "no sample" in (outcome.result.err_message or "")

    async def test_b08_removed_sample(
        self, make_backend: MakeBackend, make_request: MakeRequest
    ) -> None:
        """A sample may be removed without a reward."""

        async def grade(ctx: GraderContext) -> None:
            assert ctx.sample is not None
            ctx.sample.remove_sample = True

        outcome = await make_backend(answer, grade).execute(make_request())
        assert outcome.result.status is RolloutStatus.SUCCESS
        assert outcome.result.sample is not None
        assert outcome.result.sample.remove_sample
        assert outcome.result.sample.reward is None

    @pytest.mark.parametrize("replacement", [None, {"reward": 1.0}])
    async def test_replaced_samples(
        self, replacement: Any, make_backend: MakeBackend, make_request: MakeRequest
    ) -> None:
        """What the grader puts in the sample's place must be a sample."""

        async def grade(ctx: GraderContext) -> None:
            ctx.sample = replacement

        outcome = await make_backend(answer, grade).execute(make_request())
        assert outcome.result.status is RolloutStatus.FAILURE
        assert outcome.result.err_category == "validation_error"

    @pytest.mark.parametrize("reward", [float("nan"), "1.0"])
    async def test_b22_rewards_written_past_the_checks(
        self, reward: Any, make_backend: MakeBackend, make_request: MakeRequest
    ) -> None:
        """No success carries a reward that is no number, however it got into the sample."""

        async def grade(ctx: GraderContext) -> None:
            vars(ctx.sample)["reward"] = reward

        outcome = await make_backend(answer, grade).execute(make_request())
        assert outcome.result.status is RolloutStatus.FAILURE
        assert outcome.result.err_category == "validation_error"
        assert outcome.result.sample is not None
        assert outcome.result.sample.reward is None

    async def test_b14_preset_reward_does_not_count(
        self, make_backend: MakeBackend, make_request: MakeRequest
    ) -> None:
        """Neither a source's reward nor a reward file nor a metric is one."""

        class Cheat(SampleSource):
            async def get_sample(self) -> RolloutSample:
                return RolloutSample(messages=[ANSWER], reward=1.0, metrics={"reward": 1})

        async def run(ctx: AgentWorkflowContext[Any]) -> None:
            context = get_rollout_context()
            assert context is not None
            context.set_sample_source(Cheat())
            assert ctx.artifacts_dir is not None
            (ctx.artifacts_dir / "reward.json").write_text('{"reward": 1}')
            (ctx.artifacts_dir.parent / "reward.json").write_text('{"reward": 1}')

        async def grade(ctx: GraderContext) -> None:
            assert ctx.sample is not None
            assert ctx.sample.reward is None

        outcome = await make_backend(run, grade).execute(make_request())
        assert outcome.result.status is RolloutStatus.FAILURE
        assert "no reward" in (outcome.result.err_message or "")
        ungraded = await make_backend(run).execute(make_request("r-2"))
        assert ungraded.grading_skipped == "the backend has no grader"
        assert ungraded.result.status is RolloutStatus.SUCCESS
        assert ungraded.result.sample is not None
        assert ungraded.result.sample.reward is None


class TestNumbers:
    """B09: what a reward may be."""

    @pytest.mark.parametrize(
        ("value", "reward"),
        [
            (True, 1.0),
            (np.bool_(1), 1.0),
            (np.float32(0.5), 0.5),
            (np.int64(1), 1.0),
            (Decimal("0.1"), 0.1),
            (Fraction(1, 3), 1 / 3),
        ],
        ids=repr,
    )
    async def test_b09_numbers(
        self, value: Any, reward: float, make_backend: MakeBackend, make_request: MakeRequest
    ) -> None:
        """Numbers of any make become floats, as rewards and as an output's metrics."""

        async def run(ctx: AgentWorkflowContext[Any]) -> AgentWorkflowOutput:
            return AgentWorkflowOutput(messages=[ANSWER], metrics={"m": value})

        async def grade(ctx: GraderContext) -> None:
            ctx.set_reward(value)

        outcome = await make_backend(run, grade).execute(make_request())
        assert outcome.result.sample is not None
        assert (outcome.result.sample.reward, type(outcome.result.sample.reward)) == (reward, float)
        assert outcome.result.sample.metrics == {"m": reward}

    @pytest.mark.parametrize(
        "value",
        [
            np.array(1.0),
            np.array([1.0]),
            "0.5",
            " 1 ",
            "1_000",
            b"1",
            "nan",
            float("nan"),
            float("inf"),
            10**400,
            1j,
            [1.0],
        ],
        ids=lambda value: repr(value)[:20],
    )
    async def test_b09_refused(
        self, value: Any, make_backend: MakeBackend, make_request: MakeRequest
    ) -> None:
        """What is no finite number is refused, and the error does not make one up."""

        async def grade(ctx: GraderContext) -> None:
            ctx.set_reward(value)

        outcome = await make_backend(answer, grade).execute(make_request())
        assert outcome.result.status is RolloutStatus.FAILURE
        assert outcome.result.err_category == "validation_error"
        assert outcome.result.sample is not None
        assert outcome.result.sample.reward is None

        async def run(ctx: AgentWorkflowContext[Any]) -> AgentWorkflowOutput:
            return AgentWorkflowOutput(messages=[ANSWER], metrics={"m": value})

        outcome = await make_backend(run).execute(make_request())
        assert outcome.result.err_category == "validation_error"

    @pytest.mark.parametrize("error", [RuntimeError("judge is down"), PolicyError("cut stream")])
    async def test_b15_failed_gradings_have_no_reward(
        self, error: Exception, make_backend: MakeBackend, make_request: MakeRequest
    ) -> None:
        """A reward that was set before the failure is not one; the sample is kept."""

        async def grade(ctx: GraderContext) -> None:
            ctx.set_reward(0)
            raise error

        outcome = await make_backend(answer, grade).execute(make_request())
        assert outcome.result.status is RolloutStatus.FAILURE
        assert outcome.result.err_message == str(error)
        assert outcome.result.sample is not None
        assert outcome.result.sample.messages == [ANSWER]
        assert outcome.result.sample.reward is None
