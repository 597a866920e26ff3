"""What the adapter exports, and what importing it costs."""

import subprocess
import sys

import osmosis_ai.rollout.integrations.agents.strands as adapter

LOADED = "\nimport sys\nprint(*{name.partition('.')[0] for name in sys.modules})"


def loaded_by(code: str) -> set[str]:
    """The top-level modules that a fresh interpreter has after `code`."""
    run = subprocess.run(
        [sys.executable, "-c", code + LOADED], capture_output=True, text=True, check=True
    )
    return set(run.stdout.split())


def test_all_names_every_public_object() -> None:
    """`__all__` holds the two promised names and the module offers no other."""
    assert adapter.__all__ == ["OsmosisRolloutModel", "OsmosisStrandsAgent"]
    public = {name for name in vars(adapter) if not name.startswith("_")}
    assert public == set(adapter.__all__)


def test_import_loads_nothing_beside_strands() -> None:
    """No LiteLLM, no OpenAI client, nothing that `strands` does not load by itself."""
    extra = loaded_by(f"import {adapter.__name__}") - loaded_by("import strands")
    assert extra - sys.stdlib_module_names == {"osmosis_ai"}
