"""The contract for agents."""

from abc import ABC, abstractmethod
from typing import Any

from osmosis_ai.rollout.context import AgentWorkflowContext
from osmosis_ai.rollout.types.config import AgentWorkflowConfig
from osmosis_ai.rollout.types.output import AgentWorkflowOutput


class ToolError(Exception):
    """A tool failed, rather than the agent around it: `raise ToolError("search") from error`.

    It changes nothing but the failure's `origin`.
    """


class AgentWorkflow[TConfig: AgentWorkflowConfig](ABC):
    """What the agent does with a prompt before the grader scores it.

    A backend builds a fresh object for every rollout.

    Attributes:
        config: The workflow's config, a private copy of the one that the backend was given.
    """

    def __init__(self, config: TConfig | None = None) -> None:
        self.config = config

    @abstractmethod
    async def run(
        self, ctx: AgentWorkflowContext[TConfig]
    ) -> AgentWorkflowOutput | list[dict[str, Any]] | None:
        """Run the agent once.

        Returns:
            The output, or its messages alone, or None to have the sample collected from the source
            that was registered with the active `RolloutContext`.
        """
