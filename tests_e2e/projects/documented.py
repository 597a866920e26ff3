"""The public documentation's samples that need no agent framework, as they are written there."""

from osmosis_ai.rollout import (
    AgentWorkflow,
    AgentWorkflowConfig,
    AgentWorkflowContext,
    AgentWorkflowOutput,
    ConcurrencyConfig,
    LocalBackend,
)
from osmosis_ai.rollout.server import create_rollout_server


class MyWorkflow(AgentWorkflow):
    async def run(self, ctx: AgentWorkflowContext) -> None:
        # Build and run your agent here.
        pass


class ExplicitWorkflow(AgentWorkflow):
    async def run(self, ctx: AgentWorkflowContext) -> AgentWorkflowOutput:
        messages = [*ctx.prompt, {"role": "assistant", "content": "done"}]
        return AgentWorkflowOutput(
            messages=messages,
            metrics={"steps": 1.0},
        )


class TracingWorkflow(AgentWorkflow):
    async def run(self, ctx: AgentWorkflowContext) -> None:
        if ctx.artifacts_dir:
            (ctx.artifacts_dir / "run.log").write_text("started\n")
        ...


class SearchWorkflowConfig(AgentWorkflowConfig):
    name: str = "search-workflow"
    max_iterations: int = 8
    temperature: float = 1.0
    concurrency: ConcurrencyConfig = ConcurrencyConfig(max_concurrent=4)


class SearchWorkflow(AgentWorkflow[SearchWorkflowConfig]):
    async def run(self, ctx: AgentWorkflowContext[SearchWorkflowConfig]) -> None:
        config = ctx.config or SearchWorkflowConfig()
        max_iterations = config.max_iterations  # noqa: F841
        temperature = config.temperature  # noqa: F841
        # Use these values when constructing your agent.


search_workflow_config = SearchWorkflowConfig()

backend = LocalBackend(
    workflow=SearchWorkflow,
    workflow_config=search_workflow_config,
)
app = create_rollout_server(backend=backend)
# The same wiring for the samples beside it, so that each of them can be served.
tracing = create_rollout_server(backend=LocalBackend(workflow=TracingWorkflow))
explicit = create_rollout_server(backend=LocalBackend(workflow=ExplicitWorkflow))
empty = create_rollout_server(backend=LocalBackend(workflow=MyWorkflow))
