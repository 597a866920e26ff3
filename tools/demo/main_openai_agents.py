"""The same project with the OpenAI Agents SDK: tool and grader are main.py's."""

from typing import Any

from agents import Runner, function_tool
from main import NumberGrader, evaluate

from osmosis_ai.rollout import (
    AgentWorkflow,
    AgentWorkflowConfig,
    AgentWorkflowContext,
    LocalBackend,
)
from osmosis_ai.rollout.integrations.agents.openai_agents import (
    OsmosisAgent,
    OsmosisMemorySession,
    OsmosisRolloutModel,
)
from osmosis_ai.rollout.server import create_rollout_server


@function_tool
def calculator(expression: str) -> str:
    """Evaluate an arithmetic expression such as (3 + 4) * 2.5."""
    return evaluate(expression)


class SolverConfig(AgentWorkflowConfig):
    name: str = "gsm8k-openai-agents-solver"
    model: Any = OsmosisRolloutModel()


class Solver(AgentWorkflow[SolverConfig]):
    async def run(self, ctx: AgentWorkflowContext[SolverConfig]) -> None:
        agent = OsmosisAgent(
            name="solver", model=(ctx.config or SolverConfig()).model, tools=[calculator]
        )
        prompt: Any = ctx.prompt
        await Runner.run(agent, prompt, session=OsmosisMemorySession(), max_turns=50)


backend = LocalBackend(workflow=Solver, workflow_config=SolverConfig(), grader=NumberGrader)
app = create_rollout_server(backend=backend)
