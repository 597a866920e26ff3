"""Validate the trajectory documents below some directories with Harbor's models and with our own.

    python tools/check_trajectories.py DIRECTORY...

A file counts when it is a JSON object with a `schema_version`: user code and tests put other things
under the same name.
"""

import gzip
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Harbor is in the environment of the session that runs this, and in no other.
from harbor.models.trajectories import (  # pyright: ignore[reportMissingImports]
    Trajectory as HarborTrajectory,
)
from harbor.utils.trajectory_validator import (  # pyright: ignore[reportMissingImports]
    TrajectoryValidator,
)
from pydantic import ValidationError

from osmosis_ai.rollout.trajectory import read_trajectory

NAMES = ("trajectory.json", "trajectory.json.gz")


def documents(folder: Path) -> Iterator[tuple[Path, Any]]:
    """Yield the documents below a directory, no link followed."""
    for place, _, names in os.walk(folder):
        for path in (Path(place, name) for name in NAMES if name in names):
            if path.is_symlink() or not path.is_file():
                continue
            data = path.read_bytes()
            if path.suffix == ".gz":
                data = gzip.decompress(data)
            try:
                content = json.loads(data)
            except ValueError:
                continue
            if isinstance(content, dict) and "schema_version" in content:
                yield path, content


def problems(path: Path, content: Any) -> list[str]:
    """Return what is wrong with a document."""
    validator = TrajectoryValidator()
    if path.suffix == ".gz":
        validator.validate(content)
    else:
        # By its path, so that the images and sounds that it refers to are looked for.
        validator.validate(path)
    found = list(validator.get_errors())
    try:
        theirs = HarborTrajectory.model_validate(content).to_json_dict()
        ours = read_trajectory(path).model_dump(exclude_none=True)
    except ValidationError as error:
        return [*found, str(error)]
    return found if theirs == ours else [*found, "Harbor and we read it differently"]


def main() -> None:
    """Check every directory; exit with 1 when a document is bad or there is none at all."""
    checked = bad = 0
    for folder in sys.argv[1:]:
        for path, content in documents(Path(folder)):
            checked += 1
            if found := problems(path, content):
                bad += 1
                print(path, *found, sep="\n  ")
    print(f"{checked} documents, {bad} bad")
    sys.exit(bad > 0 or not checked)


if __name__ == "__main__":
    main()
