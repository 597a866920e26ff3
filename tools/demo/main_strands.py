"""The same project with a Strands agent: the workflow differs, tool and grader are main.py's."""

from typing import Any

from main import NumberGrader, evaluate
from strands import tool

from osmosis_ai.rollout import (
    AgentWorkflow,
    AgentWorkflowConfig,
    AgentWorkflowContext,
    LocalBackend,
)
from osmosis_ai.rollout.integrations.agents.strands import OsmosisRolloutModel, OsmosisStrandsAgent
from osmosis_ai.rollout.server import create_rollout_server


@tool
def calculator(expression: str) -> str:
    """Evaluate an arithmetic expression such as (3 + 4) * 2.5."""
    return evaluate(expression)


class SolverConfig(AgentWorkflowConfig):
    name: str = "gsm8k-strands-solver"
    model: Any = OsmosisRolloutModel()


class Solver(AgentWorkflow[SolverConfig]):
    async def run(self, ctx: AgentWorkflowContext[SolverConfig]) -> None:
        agent = OsmosisStrandsAgent(
            model=(ctx.config or SolverConfig()).model,
            messages=ctx.prompt,
            tools=[calculator],
            callback_handler=None,
        )
        await agent.invoke_async()


backend = LocalBackend(workflow=Solver, workflow_config=SolverConfig(), grader=NumberGrader)
app = create_rollout_server(backend=backend)
