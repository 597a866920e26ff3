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


@pytest.mark.parametrize(
    "code",
    [
        "import osmosis_ai.rollout.client",
        "import osmosis_ai.rollout.eval",
        "from osmosis_ai.rollout.eval._command import app; app(['--help'], standalone_mode=False)",
    ],
)
def test_nothing_heavy_is_imported_before_it_is_needed(code: str) -> None:
    """Neither HTTP nor Arrow for an import or for help, and a terminal's packages for help only."""
    heavy = {"aiohttp", "httpx", "pyarrow"} | (set() if "app" in code else {"rich", "typer"})
    code = f"import sys; {code}; print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"
