"""The public names are the ones that `__all__` promises."""

import importlib
import subprocess
import sys

import pytest


@pytest.mark.parametrize("name", ["osmosis_ai.rollout.client", "osmosis_ai.rollout.eval"])
def test_all_names_every_public_object(name: str) -> None:
    """`__all__` is sorted and holds what the module offers, no more and no less."""
    module = importlib.import_module(name)
    public = {
        key
        for key, value in vars(module).items()
        if not key.startswith("_") and type(value) is not type(module)
    }
    assert public == set(module.__all__)
    assert sorted(module.__all__, key=lambda n: (n[0].islower(), n)) == module.__all__


def test_the_library_imports_no_terminal_packages() -> None:
    """Only the command needs the extra."""
    # httpx imports rich by itself where it is installed.
    code = "import sys, osmosis_ai.rollout.eval; print({'typer'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
