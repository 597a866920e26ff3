"""The contract for graders."""

from abc import ABC, abstractmethod
from typing import Any

from osmosis_ai.rollout.context import GraderContext
from osmosis_ai.rollout.types.config import GraderConfig


class Grader(ABC):
    """What turns a finished sample into one reward; a backend builds a fresh object per rollout.

    Attributes:
        config: The grader's config, a private copy of the one that the backend was given.
    """

    def __init__(self, config: GraderConfig | None = None) -> None:
        self.config = config

    @abstractmethod
    async def grade(self, ctx: GraderContext) -> Any:
        """Score `ctx.sample` by calling `ctx.set_reward()`; what is returned is ignored."""
