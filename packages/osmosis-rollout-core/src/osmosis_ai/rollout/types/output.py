"""What a workflow may return from `run()`."""

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from osmosis_ai.rollout.types.messages import Messages
from osmosis_ai.rollout.types.numbers import FiniteNumber


class AgentWorkflowOutput(BaseModel):
    """The explicit result of `AgentWorkflow.run()`.

    Attributes:
        messages: The sample's messages; an empty list is a real sample, None means no sample.
        metrics: Finite measurements of this rollout, by name.
        info: Reserved; it is not passed to graders, trainers or archives.
    """

    # Instances are checked again at every backend boundary, so that a NaN written after
    # construction does not slip through.
    model_config: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid", revalidate_instances="always", hide_input_in_errors=True
    )

    messages: Messages | None = None
    metrics: dict[str, FiniteNumber] = Field(default_factory=dict)
    info: dict[str, Any] = Field(default_factory=dict)
