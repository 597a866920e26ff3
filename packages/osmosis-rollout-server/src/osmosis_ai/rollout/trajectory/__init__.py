"""ATIF trajectories: models, conversion and storage.

ATIF is the Agent Trajectory Interchange Format, documented at
https://www.harborframework.com/docs/agents/trajectory-format. Nothing here needs a web framework:
a custom harness can save trajectories too.
"""

from osmosis_ai.rollout.trajectory._convert import convert_sample_to_trajectory
from osmosis_ai.rollout.trajectory._messages import convert_trajectory_to_messages
from osmosis_ai.rollout.trajectory._models import (
    Agent,
    AudioSource,
    ContentPart,
    FinalMetrics,
    ImageSource,
    Metrics,
    Observation,
    ObservationResult,
    Step,
    SubagentTrajectoryRef,
    ToolCall,
    Trajectory,
)
from osmosis_ai.rollout.trajectory._read import read_trajectory
from osmosis_ai.rollout.trajectory._report import CallReport, SampleReport, TrajectoryReport
from osmosis_ai.rollout.trajectory._store import save_trajectory

__all__ = [
    "Agent",
    "AudioSource",
    "CallReport",
    "ContentPart",
    "FinalMetrics",
    "ImageSource",
    "Metrics",
    "Observation",
    "ObservationResult",
    "SampleReport",
    "Step",
    "SubagentTrajectoryRef",
    "ToolCall",
    "Trajectory",
    "TrajectoryReport",
    "convert_sample_to_trajectory",
    "convert_trajectory_to_messages",
    "read_trajectory",
    "save_trajectory",
]
