"""What a workflow is given, and what becomes of what it returns."""

import asyncio
import copy
import shutil
import sys
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import Field

from osmosis_ai.rollout import (
    AgentWorkflow,
    AgentWorkflowConfig,
    AgentWorkflowContext,
    AgentWorkflowOutput,
    ExecutionResult,
    GraderContext,
    LocalBackend,
    RolloutContext,
    RolloutSample,
    RolloutStatus,
    SampleSource,
    get_rollout_context,
)
from osmosis_ai.rollout.backend import reporting_to
from osmosis_ai.rollout.policy import PolicyError

from .conftest import MakeBackend, MakeRequest

ANSWER = {"role": "assistant", "content": "4"}


class Recorder(SampleSource):
    """A source that tells what it was made with, or raises it."""

    def __init__(self, told: object) -> None:
        self.told = told

    async def get_sample(self) -> RolloutSample:
        """Tell it."""
        if isinstance(self.told, BaseException):
            raise self.told
        return self.told  # type: ignore[return-value]  # users' sources return anything


class Panicking:
    """A value whose copying ends in a panic, which is no `Exception`."""

    def __deepcopy__(self, memo: object) -> "Panicking":
        raise BaseException


def register(told: object) -> None:
    """Register a source with the active rollout."""
    context = get_rollout_context()
    assert context is not None
    context.set_sample_source(Recorder(told))


class TestResults:
    """The kinds of results of `run()`."""

    async def test_output(self, make_backend: MakeBackend, make_request: MakeRequest) -> None:
        """An output becomes the sample, with the request's label and its metrics."""

        async def run(ctx: AgentWorkflowContext[Any]) -> AgentWorkflowOutput:
            return AgentWorkflowOutput(messages=[*ctx.prompt, ANSWER], metrics={"steps": 1})

        outcome = await make_backend(run).execute(make_request())
        assert outcome.grader is None
        assert outcome.workflow.status is RolloutStatus.SUCCESS
        sample = outcome.workflow.sample
        assert sample is not None
        assert sample.messages == [{"role": "user", "content": "2+2?"}, ANSWER]
        assert sample.trajectory_messages == sample.messages
        assert (sample.label, sample.reward, sample.metrics) == ("4", None, {"steps": 1.0})

    @pytest.mark.parametrize("messages", [[ANSWER], []])
    async def test_list(
        self, messages: list[Any], make_backend: MakeBackend, make_request: MakeRequest
    ) -> None:
        """A list becomes the sample's messages; an empty one is a real sample."""

        async def run(ctx: AgentWorkflowContext[Any]) -> list[Any]:
            return messages

        outcome = await make_backend(run).execute(make_request())
        assert outcome.workflow.sample is not None
        assert outcome.workflow.sample.messages == messages

    @pytest.mark.parametrize("returned", [None, AgentWorkflowOutput()])
    async def test_no_sample(
        self, returned: object, make_backend: MakeBackend, make_request: MakeRequest
    ) -> None:
        """Neither messages nor a source: a success without a sample."""

        async def run(ctx: AgentWorkflowContext[Any]) -> object:
            return returned

        outcome = await make_backend(run).execute(make_request())
        assert outcome.workflow == ExecutionResult(status=RolloutStatus.SUCCESS)

    async def test_source(self, make_backend: MakeBackend, make_request: MakeRequest) -> None:
        """A source's sample is used as it was returned."""
        told = RolloutSample(messages=[ANSWER], label="source's", extra_fields={"a": 1})

        async def run(ctx: AgentWorkflowContext[Any]) -> None:
            register(told)

        outcome = await make_backend(run).execute(make_request())
        assert outcome.workflow.sample == told

    async def test_explicit_result_beats_a_source(
        self, make_backend: MakeBackend, make_request: MakeRequest
    ) -> None:
        """What run() returns decides, if it returns anything."""

        async def run(ctx: AgentWorkflowContext[Any]) -> list[Any]:
            register(RolloutSample(messages=[{"role": "user", "content": "source"}]))
            return [ANSWER]

        outcome = await make_backend(run).execute(make_request())
        assert outcome.workflow.sample is not None
        assert outcome.workflow.sample.messages == [ANSWER]

    async def test_output_without_messages_beats_a_source(
        self,
        make_backend: MakeBackend,
        make_request: MakeRequest,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """It does so too when that leaves no sample, which is worth a warning."""

        async def run(ctx: AgentWorkflowContext[Any]) -> AgentWorkflowOutput:
            register(RolloutSample(messages=[ANSWER]))
            return AgentWorkflowOutput(metrics={"steps": 1})

        outcome = await make_backend(run).execute(make_request())
        assert outcome.workflow == ExecutionResult(status=RolloutStatus.SUCCESS)
        assert "an explicit output beats the registered source" in caplog.text

    @pytest.mark.parametrize(
        ("returned", "message"),
        [
            ("text", "run() returned str"),
            ({"messages": []}, "run() returned dict"),
            ((ANSWER,), "run() returned tuple"),
            (1.0, "run() returned float"),
            (RolloutSample(messages=[ANSWER], reward=1.0), "run() returned RolloutSample"),
            (["text"], "messages.0"),
            ([ANSWER, None], "messages.1"),
        ],
    )
    async def test_b14_other_results(
        self, returned: object, message: str, make_backend: MakeBackend, make_request: MakeRequest
    ) -> None:
        """Anything else is refused, a sample with a reward of its own too."""

        async def run(ctx: AgentWorkflowContext[Any]) -> object:
            return returned

        outcome = await make_backend(run).execute(make_request())
        assert outcome.workflow.status is RolloutStatus.FAILURE
        assert outcome.workflow.err_category == "validation_error"
        assert message in (outcome.workflow.err_message or "")

    @pytest.mark.parametrize("told", [None, {"messages": []}, "text"])
    async def test_other_results_of_a_source(
        self, told: object, make_backend: MakeBackend, make_request: MakeRequest
    ) -> None:
        """A source must tell a sample."""

        async def run(ctx: AgentWorkflowContext[Any]) -> None:
            register(told)

        outcome = await make_backend(run).execute(make_request())
        assert outcome.workflow.err_category == "validation_error"
        assert "expected a RolloutSample" in (outcome.workflow.err_message or "")

    async def test_written_after_construction(
        self, make_backend: MakeBackend, make_request: MakeRequest
    ) -> None:
        """Outputs are validated again at the boundary."""

        async def run(ctx: AgentWorkflowContext[Any]) -> AgentWorkflowOutput:
            output = AgentWorkflowOutput(messages=[ANSWER])
            output.metrics["loss"] = float("nan")
            return output

        outcome = await make_backend(run).execute(make_request())
        assert outcome.workflow.err_category == "validation_error"
        assert "metrics.loss" in (outcome.workflow.err_message or "")

    async def test_plain_function(
        self, make_backend: MakeBackend, make_request: MakeRequest
    ) -> None:
        """A run() that is not async fails its rollout."""

        class Plain(AgentWorkflow[AgentWorkflowConfig]):
            def run(self, ctx: object) -> Any:
                return [ANSWER]

        outcome = await LocalBackend(workflow=Plain).execute(make_request())
        assert outcome.workflow.err_category == "validation_error"
        assert "await" in (outcome.workflow.err_message or "")


class TestFailures:
    """B15: what user code raises ends its rollout alone."""

    @pytest.mark.parametrize(
        ("error", "message", "category"),
        [
            (RuntimeError("boom"), "boom", "agent_error"),
            (KeyError(), "KeyError", "agent_error"),
            (PolicyError("cut stream"), "cut stream", "http_error"),
            (SystemExit("no more"), "no more", "agent_error"),
            (KeyboardInterrupt(), "KeyboardInterrupt", "agent_error"),
            (GeneratorExit(), "GeneratorExit", "agent_error"),
            (StopIteration("x"), "StopIteration", "agent_error"),
            (asyncio.CancelledError(), "CancelledError", "agent_error"),
            (BaseExceptionGroup("g", [SystemExit(2)]), "g (1 sub-exception): 2", "agent_error"),
        ],
    )
    @pytest.mark.parametrize("where", ["run", "constructor", "source", "grade"])
    async def test_b15_raised(
        self,
        error: BaseException,
        message: str,
        category: str,
        where: str,
        make_backend: MakeBackend,
        make_request: MakeRequest,
    ) -> None:
        """Any BaseException out of any user code is a failure with message and category."""
        error = copy.copy(error)

        async def run(ctx: AgentWorkflowContext[Any]) -> Any:
            if where == "run":
                raise error
            if where == "source":
                return register(error)
            return [ANSWER]

        async def grade(ctx: GraderContext) -> None:
            ctx.set_reward(1)
            raise error

        class Unbuildable(AgentWorkflow[AgentWorkflowConfig]):
            def __init__(self, config: object) -> None:
                raise error

            async def run(self, ctx: object) -> None: ...

        backend = make_backend(run, grade if where == "grade" else None)
        if where == "constructor":
            backend = LocalBackend(workflow=Unbuildable)
        outcome = await backend.execute(make_request())
        assert outcome.result.status is RolloutStatus.FAILURE
        assert outcome.result.err_category == category
        assert message in (outcome.result.err_message or "")
        assert outcome.result.sample is None or outcome.result.sample.reward is None
        assert (outcome.grader is not None) == (where == "grade")

    async def test_neighbours_are_not_disturbed(
        self, make_backend: MakeBackend, make_request: MakeRequest
    ) -> None:
        """A rollout that exits leaves the others alone."""

        async def run(ctx: AgentWorkflowContext[Any]) -> Any:
            await asyncio.sleep(0)
            if ctx.metadata:
                sys.exit("bye")
            return [ANSWER]

        backend = make_backend(run)
        outcomes = await asyncio.gather(
            *(
                backend.execute(make_request(f"r-{n}", metadata={"exit": 1} if n % 2 else None))
                for n in range(8)
            )
        )
        assert [outcome.result.status == "success" for outcome in outcomes] == [True, False] * 4

    async def test_partial_transcript(
        self, make_backend: MakeBackend, make_request: MakeRequest
    ) -> None:
        """A failed workflow keeps what its source tells, never a reward."""

        async def run(ctx: AgentWorkflowContext[Any]) -> None:
            register(RolloutSample(messages=[ANSWER], reward=1.0))
            msg = "boom"
            raise RuntimeError(msg)

        outcome = await make_backend(run).execute(make_request())
        assert outcome.result.err_message == "boom"
        assert outcome.result.sample is not None
        assert outcome.result.sample.messages == [ANSWER]
        assert outcome.result.sample.reward is None

    @pytest.mark.parametrize("told", [RuntimeError("no history"), SystemExit(1), None])
    async def test_partial_transcript_that_cannot_be_had(
        self,
        told: object,
        make_backend: MakeBackend,
        make_request: MakeRequest,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """Collecting it never hides what went wrong."""

        async def run(ctx: AgentWorkflowContext[Any]) -> None:
            register(told)
            msg = "boom"
            raise RuntimeError(msg)

        outcome = await make_backend(run).execute(make_request())
        assert outcome.result.err_message == "boom"
        assert outcome.result.sample is None
        assert "partial conversation of rollout r-1 cannot be collected" in caplog.text


class TestContext:
    """B04: what is active while a rollout runs."""

    async def test_b04_each_rollout_sees_its_own(
        self, make_backend: MakeBackend, make_request: MakeRequest
    ) -> None:
        """Tasks and to_thread inherit the context; other threads have none."""
        everybody_inside = asyncio.Barrier(8)

        def seen() -> str | None:
            context = get_rollout_context()
            return context and f"{context.rollout_id} {context.chat_completions_url}"

        async def seen_in_task() -> str | None:
            return seen()

        async def run(ctx: AgentWorkflowContext[Any]) -> AgentWorkflowOutput:
            await everybody_inside.wait()
            raw: list[str | None] = []
            thread = threading.Thread(target=lambda: raw.append(seen()))
            thread.start()
            views = [
                seen(),
                await asyncio.to_thread(seen),
                await asyncio.create_task(seen_in_task()),
                await asyncio.get_running_loop().run_in_executor(None, seen),
            ]
            thread.join()
            return AgentWorkflowOutput(messages=[{"views": [*views, *raw]}])

        backend = make_backend(run)

        async def rollout(name: str) -> Mapping[str, Any]:
            with RolloutContext(f"http://{name}/v1", "key", name):
                outcome = await backend.execute(make_request(name))
            assert outcome.result.sample is not None
            return outcome.result.sample.messages[0]

        names = [f"r-{number}" for number in range(8)]
        messages = await asyncio.gather(*(rollout(name) for name in names))
        for name, message in zip(names, messages, strict=True):
            own = f"{name} http://{name}/v1"
            assert message["views"] == [own, own, own, None, None]
        assert get_rollout_context() is None

    async def test_without_an_active_context(
        self,
        make_backend: MakeBackend,
        make_request: MakeRequest,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Outside of one the environment names the endpoint, and the request the rollout."""
        monkeypatch.setenv("OSMOSIS_CHAT_COMPLETIONS_URL", "http://env/v1")
        monkeypatch.setenv("OSMOSIS_ROLLOUT_ID", "env")

        async def run(ctx: AgentWorkflowContext[Any]) -> list[Any]:
            context = get_rollout_context()
            assert context is not None
            return [{"url": context.chat_completions_url, "id": context.rollout_id}]

        outcome = await make_backend(run).execute(make_request())
        assert outcome.result.sample is not None
        assert outcome.result.sample.messages == [{"url": "http://env/v1", "id": "r-1"}]

    async def test_source_of_the_active_context(
        self, make_backend: MakeBackend, make_request: MakeRequest
    ) -> None:
        """A source that was registered outside serves the rollout; the outer context stays."""

        async def run(ctx: AgentWorkflowContext[Any]) -> None: ...

        with RolloutContext("http://x/v1", sample_source=Recorder(RolloutSample())) as outer:
            outcome = await make_backend(run).execute(make_request())
            assert get_rollout_context() is outer
        assert outcome.result.sample == RolloutSample()

    async def test_grader_may_register_a_source_of_its_own(
        self, make_backend: MakeBackend, make_request: MakeRequest
    ) -> None:
        """An agent that the grader builds does not meet the workflow's."""

        async def run(ctx: AgentWorkflowContext[Any]) -> None:
            register(RolloutSample(messages=[ANSWER]))

        async def grade(ctx: GraderContext) -> None:
            register(RolloutSample(messages=[{"role": "judge"}]))
            ctx.set_reward(1)

        outcome = await make_backend(run, grade).execute(make_request())
        assert outcome.result.status is RolloutStatus.SUCCESS
        assert outcome.result.sample is not None
        assert outcome.result.sample.messages == [ANSWER]


class Config(AgentWorkflowConfig):
    """A config with something to change."""

    name: str = "c"
    tools: list[str] = Field(default_factory=lambda: ["search"])


class TestPrivateCopies:
    """B06: one rollout cannot change another."""

    async def test_b06_inputs_are_private(self, make_request: MakeRequest) -> None:
        """The next rollout sees what the first one saw."""
        seen: list[Any] = []

        class Vandal(AgentWorkflow[Config]):
            async def run(self, ctx: AgentWorkflowContext[Config]) -> list[Any]:
                assert ctx.config is not None
                assert ctx.config is self.config
                assert ctx.metadata is not None
                seen.append(copy.deepcopy((ctx.prompt, ctx.metadata, ctx.config)))
                ctx.prompt[0]["content"] = "changed"
                ctx.prompt.append(ANSWER)
                ctx.metadata["k"]["deep"] = "changed"
                ctx.config.tools.append("shell")
                return ctx.prompt

        config = Config()
        backend = LocalBackend(workflow=Vandal, workflow_config=config)
        request = make_request("r-1", metadata={"k": {"deep": 1}})
        before = request.model_copy(deep=True)
        await backend.execute(request)
        assert request == before
        await backend.execute(request.model_copy(update={"id": "r-2"}))
        assert seen[0] == seen[1]
        assert config == Config()

    async def test_b06_results_are_private(
        self, make_backend: MakeBackend, make_request: MakeRequest
    ) -> None:
        """A workflow that keeps its messages cannot change the sample; nor can the grader change
        what is archived."""
        kept: list[Any] = []

        async def run(ctx: AgentWorkflowContext[Any]) -> list[Any]:
            kept.append({"role": "assistant", "content": {"text": "4"}})
            return kept

        async def grade(ctx: GraderContext) -> None:
            kept[0]["content"]["text"] = "changed"
            kept.clear()
            assert ctx.sample is not None
            assert ctx.sample.messages == [{"role": "assistant", "content": {"text": "4"}}]
            message: Any = ctx.sample.messages[0]
            message["content"] = "graded"
            ctx.set_reward(1)

        outcome = await make_backend(run, grade).execute(make_request())
        assert outcome.result.status is RolloutStatus.SUCCESS
        assert outcome.result.sample is not None
        assert outcome.result.sample.trajectory_messages == [
            {"role": "assistant", "content": {"text": "4"}}
        ]
        assert outcome.workflow.sample is not None
        assert outcome.workflow.sample.reward is None

    async def test_metadata_is_one_object(
        self, make_backend: MakeBackend, make_request: MakeRequest
    ) -> None:
        """Workflow and grader share the copy, and may hand notes on in it."""
        seen: list[Any] = []

        async def run(ctx: AgentWorkflowContext[Any]) -> list[Any]:
            seen.append(ctx.metadata)
            return [ANSWER]

        async def grade(ctx: GraderContext) -> None:
            seen.append(ctx.metadata)
            ctx.set_reward(1)

        request = make_request(metadata={"a": 1})
        await make_backend(run, grade).execute(request)
        assert seen[0] is seen[1]
        assert seen[0] is not request.metadata

    @pytest.mark.parametrize("foreign", [threading.Lock(), Panicking()], ids=["lock", "panic"])
    async def test_b06_messages_that_cannot_be_copied(
        self, foreign: object, make_backend: MakeBackend, make_request: MakeRequest
    ) -> None:
        """A foreign object in a message costs the trajectory, not the rollout."""
        kept: list[Any] = [{"role": "assistant", "content": "4", "foreign": foreign}]

        async def run(ctx: AgentWorkflowContext[Any]) -> list[Any]:
            return kept

        outcome = await make_backend(run).execute(make_request())
        kept[0]["content"] = "changed"
        assert outcome.result.sample is not None
        assert outcome.result.sample.messages == [
            {"role": "assistant", "content": "4", "foreign": foreign}
        ]
        assert outcome.result.sample.trajectory_messages is None

    async def test_config_that_cannot_be_copied(self, make_request: MakeRequest) -> None:
        """It fails the rollout, not the backend."""

        class Idle(AgentWorkflow[AgentWorkflowConfig]):
            async def run(self, ctx: object) -> None: ...

        config = AgentWorkflowConfig(name="c", lock=threading.Lock())  # type: ignore[call-arg]
        backend = LocalBackend(workflow=Idle, workflow_config=config)
        outcome = await backend.execute(make_request())
        assert outcome.result.err_category == "validation_error"
        assert "lock" in (outcome.result.err_message or "")


class TestProgress:
    """What a rollout reports on its way."""

    async def test_reports(self, make_backend: MakeBackend, make_request: MakeRequest) -> None:
        """Queued, running, grading with the workflow's result; the status can be asked for too."""
        reports: list[tuple[RolloutStatus, ExecutionResult | None]] = []
        statuses: list[Any] = []

        async def run(ctx: AgentWorkflowContext[Any]) -> list[Any]:
            statuses.append(backend.rollout_status("r-1"))
            return [ANSWER]

        async def grade(ctx: GraderContext) -> None:
            statuses.append(backend.rollout_status("r-1"))
            ctx.set_reward(1)

        backend = make_backend(run, grade)
        with reporting_to(lambda status, workflow: reports.append((status, workflow))):
            outcome = await backend.execute(make_request())
        assert reports == [("queued", None), ("running", None), ("grading", outcome.workflow)]
        assert statuses == [{"status": "running"}, {"status": "grading"}]
        assert backend.rollout_status("r-1") is None


def spoil(root: Path) -> None:
    """Make the root unusable."""
    root.write_text("a file")


def restore(root: Path) -> None:
    """Make it usable again."""
    root.unlink()


def tree(root: Path) -> list[str]:
    """List what is below."""
    return [str(path.relative_to(root)) for path in sorted(root.rglob("*"))]


@contextmanager
def watch_writes() -> Generator[list[str]]:
    """Collect the names of the server's own files that are opened."""
    names: list[str] = []
    watching = True

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if watching and event == "open" and str(arguments[0]).startswith(".server-"):
            names.append(str(arguments[0]))

    sys.addaudithook(hook)
    yield names
    watching = False


class TestArtifacts:
    """The directory for files."""

    async def test_both_phases_share_it(
        self, artifact_root: Path, make_backend: MakeBackend, make_request: MakeRequest
    ) -> None:
        """It lies below the root that the environment named when the backend was built."""

        async def run(ctx: AgentWorkflowContext[Any]) -> list[Any]:
            assert ctx.artifacts_dir is not None
            (ctx.artifacts_dir / "run.log").write_text("started")
            return [ANSWER]

        async def grade(ctx: GraderContext) -> None:
            assert ctx.artifacts_dir is not None
            ctx.set_reward(float((ctx.artifacts_dir / "run.log").exists()))

        backend = make_backend(run, grade)
        outcome = await backend.execute(make_request())
        assert outcome.result.status is RolloutStatus.SUCCESS
        assert backend.artifact_root == artifact_root
        assert tree(artifact_root) == ["r-1", "r-1/artifacts", "r-1/artifacts/run.log"]

    async def test_root_that_cannot_be_written(
        self,
        artifact_root: Path,
        make_backend: MakeBackend,
        make_request: MakeRequest,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """No directory is a warning, never a failed rollout; the root is tried again."""
        seen: list[Path | None] = []

        async def run(ctx: AgentWorkflowContext[Any]) -> list[Any]:
            seen.append(ctx.artifacts_dir)
            return [ANSWER]

        spoil(artifact_root)
        backend = make_backend(run)
        first = await backend.execute(make_request("r-1"))
        restore(artifact_root)
        second = await backend.execute(make_request("r-2"))
        assert (first.result.status, second.result.status) == ("success", "success")
        assert seen == [None, artifact_root / "r-2/artifacts"]
        assert "Rollout r-1 has no artifacts directory" in caplog.text

    async def test_root_is_proved_once_and_again_after_a_failure(
        self, artifact_root: Path, make_backend: MakeBackend, make_request: MakeRequest
    ) -> None:
        """A file is really written into it, for the first rollout and after a failure only."""

        async def run(ctx: AgentWorkflowContext[Any]) -> list[Any]:
            return [ANSWER]

        backend = make_backend(run)
        with watch_writes() as written:
            await backend.execute(make_request("r-1"))
            await backend.execute(make_request("r-2"))
            assert len(written) == 1
            shutil.rmtree(artifact_root)
            spoil(artifact_root)
            asyncio.get_running_loop().call_later(0.3, restore, artifact_root)
            await backend.execute(make_request("r-3"))
            await backend.execute(make_request("r-4"))
            assert len(written) == 2

    async def test_provisioning_is_retried(
        self, artifact_root: Path, make_backend: MakeBackend, make_request: MakeRequest
    ) -> None:
        """A file system that comes back is waited for, outside of the agent's deadline."""
        seen: list[Path | None] = []

        async def run(ctx: AgentWorkflowContext[Any]) -> list[Any]:
            seen.append(ctx.artifacts_dir)
            return [ANSWER]

        spoil(artifact_root)
        asyncio.get_running_loop().call_later(0.3, restore, artifact_root)
        outcome = await make_backend(run).execute(make_request(agent_timeout_sec=0.4))
        assert outcome.result.status is RolloutStatus.SUCCESS
        assert seen == [artifact_root / "r-1/artifacts"]

    async def test_ids_used_again(
        self, artifact_root: Path, make_backend: MakeBackend, make_request: MakeRequest
    ) -> None:
        """The old files are set aside."""

        async def run(ctx: AgentWorkflowContext[Any]) -> list[Any]:
            assert ctx.artifacts_dir is not None
            assert list(ctx.artifacts_dir.iterdir()) == []
            (ctx.artifacts_dir / "x").touch()
            return [ANSWER]

        backend = make_backend(run)
        for _ in range(2):
            outcome = await backend.execute(make_request())
            assert outcome.result.status is RolloutStatus.SUCCESS
        assert (artifact_root / "r-1/previous-1/artifacts/x").exists()


class TestDirectCalls:
    """A custom harness calls the phases itself."""

    async def test_workflow_then_grader(
        self, make_backend: MakeBackend, make_request: MakeRequest
    ) -> None:
        """The two phases together do what execute does, artifacts included."""

        async def run(ctx: AgentWorkflowContext[Any]) -> list[Any]:
            assert ctx.artifacts_dir is not None
            (ctx.artifacts_dir / "x").touch()
            return [ANSWER]

        async def grade(ctx: GraderContext) -> None:
            assert ctx.artifacts_dir is not None
            ctx.set_reward(len(list(ctx.artifacts_dir.iterdir())))

        backend = make_backend(run, grade)
        workflow = await backend.run_workflow(make_request())
        assert workflow.status is RolloutStatus.SUCCESS
        graded = await backend.run_grader(make_request(), workflow)
        assert graded.sample is not None
        assert graded.sample.reward == 1.0

    async def test_failed_workflow_is_not_graded(
        self, make_backend: MakeBackend, make_request: MakeRequest
    ) -> None:
        """A failure earns nothing."""

        async def run(ctx: AgentWorkflowContext[Any]) -> None:
            raise RuntimeError

        async def grade(ctx: GraderContext) -> None:
            ctx.set_reward(1)

        backend = make_backend(run, grade)
        graded = await backend.run_grader(
            make_request(),
            ExecutionResult(status=RolloutStatus.FAILURE, sample=RolloutSample(reward=1.0)),
        )
        assert graded.status is RolloutStatus.FAILURE
        assert graded.sample is not None
        assert graded.sample.reward is None

    async def test_no_grader(self, make_backend: MakeBackend, make_request: MakeRequest) -> None:
        """Grading without a grader is the caller's mistake."""

        async def run(ctx: AgentWorkflowContext[Any]) -> None: ...

        result = ExecutionResult(status=RolloutStatus.SUCCESS)
        with pytest.raises(ValueError, match="no grader"):
            await make_backend(run).run_grader(make_request(), result)
