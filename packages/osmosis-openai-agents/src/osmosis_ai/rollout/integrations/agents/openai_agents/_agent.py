"""The agent class that binds the placeholder to the rollout it is built in."""

from typing import override

from agents import Agent, Model
from agents.run_context import TContext

from osmosis_ai.rollout import get_rollout_context
from osmosis_ai.rollout.integrations.agents.openai_agents._model import (
    BoundModel,
    OsmosisRolloutModel,
)
from osmosis_ai.rollout.integrations.agents.openai_agents._tracing import keep_traces_at_home


class OsmosisAgent(Agent[TContext]):
    """An `agents.Agent` that calls the rollout's policy.

    With an `OsmosisRolloutModel` it is bound to the active rollout: build it inside `run()`. A
    rollout may have any number of such agents, for handoffs or as tools; what makes the sample is
    the one `OsmosisMemorySession` that goes to `Runner.run()`. With any other model, such as
    another agent's `agent.model`, it is a plain agent.

    It takes the arguments of `agents.Agent`.

    Raises:
        RuntimeError: there is a placeholder to bind but no active RolloutContext.
    """

    model: str | Model | None

    @override
    def __post_init__(self) -> None:
        if isinstance(self.model, OsmosisRolloutModel):
            context = get_rollout_context()
            if context is None:
                msg = (
                    "OsmosisRolloutModel stands for the policy of a rollout, but no RolloutContext "
                    "is active: build the OsmosisAgent inside run(), once per rollout"
                )
                raise RuntimeError(msg)
            keep_traces_at_home()
            self.model = BoundModel(self.model.settings, context)
        super().__post_init__()  # type: ignore[no-untyped-call]
