"""The models that cross boundaries: configs, outputs, samples, executions and the wire."""

from osmosis_ai.rollout.types.config import (
    AgentWorkflowConfig,
    BaseConfig,
    ConcurrencyConfig,
    GraderConfig,
)
from osmosis_ai.rollout.types.execution import (
    ExecutionOutcome,
    ExecutionRequest,
    ExecutionResult,
    RolloutErrorCategory,
    RolloutErrorOrigin,
    RolloutStatus,
)
from osmosis_ai.rollout.types.json_safety import json_safe
from osmosis_ai.rollout.types.messages import MessageDict, Messages
from osmosis_ai.rollout.types.numbers import FiniteNumber
from osmosis_ai.rollout.types.output import AgentWorkflowOutput
from osmosis_ai.rollout.types.protocol import (
    POLLING_LEASE_HEADER,
    CancelRolloutsRequest,
    CancelRolloutsResponse,
    GraderCompleteRequest,
    GraderStatus,
    RolloutCompleteRequest,
    RolloutInitRequest,
    RolloutInitResponse,
    RolloutResultResponse,
    RolloutStatusResponse,
)
from osmosis_ai.rollout.types.sample import RolloutSample
from osmosis_ai.rollout.types.segment import PathSegment, check_path_segment

__all__ = [
    "POLLING_LEASE_HEADER",
    "AgentWorkflowConfig",
    "AgentWorkflowOutput",
    "BaseConfig",
    "CancelRolloutsRequest",
    "CancelRolloutsResponse",
    "ConcurrencyConfig",
    "ExecutionOutcome",
    "ExecutionRequest",
    "ExecutionResult",
    "FiniteNumber",
    "GraderCompleteRequest",
    "GraderConfig",
    "GraderStatus",
    "MessageDict",
    "Messages",
    "PathSegment",
    "RolloutCompleteRequest",
    "RolloutErrorCategory",
    "RolloutErrorOrigin",
    "RolloutInitRequest",
    "RolloutInitResponse",
    "RolloutResultResponse",
    "RolloutSample",
    "RolloutStatus",
    "RolloutStatusResponse",
    "check_path_segment",
    "json_safe",
]
