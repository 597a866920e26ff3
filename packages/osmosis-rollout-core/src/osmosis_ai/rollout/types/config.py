"""Configuration models for workflows and graders."""

from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field


class ConcurrencyConfig(BaseModel):
    """Limits on what runs at the same time.

    Attributes:
        max_concurrent: How many executions may run at once, at least 1; None means no limit.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(validate_assignment=True)

    max_concurrent: int | None = Field(default=None, ge=1)


class BaseConfig(BaseModel):
    """Base of the configs that users define: extra fields are kept, assignments are validated.

    Attributes:
        name: Identifier; subclasses may give it a default.
        description: Free text for people.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(
        extra="allow", validate_assignment=True, arbitrary_types_allowed=True
    )

    name: str
    description: str | None = None


class AgentWorkflowConfig(BaseConfig):
    """Config of an `AgentWorkflow`; the backend gives each rollout a deep copy of its own.

    Attributes:
        concurrency: Limits whole executions, grading included.
    """

    concurrency: ConcurrencyConfig = Field(default_factory=ConcurrencyConfig)


class GraderConfig(BaseConfig):
    """Config of a `Grader`; the backend gives each rollout a deep copy of its own.

    Attributes:
        concurrency: Limits gradings, within the workflow's limit on executions.
    """

    concurrency: ConcurrencyConfig = Field(default_factory=ConcurrencyConfig)
