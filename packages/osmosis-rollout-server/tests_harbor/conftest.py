"""Lets these tests use the trajectory tests' chat histories, and has Harbor look at all of them."""

import sys
from pathlib import Path

from harbor.models.trajectories import Trajectory as HarborTrajectory

from osmosis_ai.rollout.trajectory import Trajectory

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "trajectory"))

from chats import CHECKS


def _harbor_loads(trajectory: Trajectory) -> None:
    HarborTrajectory.model_validate(trajectory.model_dump(exclude_none=True))


CHECKS.append(_harbor_loads)
