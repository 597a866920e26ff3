"""What happens beside a distribution that owns the same import paths."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import osmosis_ai.rollout

IMPORT = "import osmosis_ai.rollout; from osmosis_ai.rollout import AgentWorkflow"


@pytest.mark.parametrize("is_beside", [True, False])
def test_the_all_in_one_distribution_beside_ours_is_warned_of_once(
    tmp_path: Path, is_beside: bool
) -> None:
    ours = osmosis_ai.rollout.__file__
    assert ours is not None
    shutil.copytree(
        Path(ours).parent,
        tmp_path / "osmosis_ai" / "rollout",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    if is_beside:
        (tmp_path / "osmosis_ai" / "__init__.py").touch()
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {IMPORT}"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stderr.count("Uninstall osmosis-ai") == (1 if is_beside else 0)
