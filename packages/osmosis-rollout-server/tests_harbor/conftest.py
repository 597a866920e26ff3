"""Documents for Harbor's own models; they are made of the trajectory tests' chat histories."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "trajectory"))
