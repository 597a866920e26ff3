"""What the adapter exports, and what importing it costs."""

import subprocess
import sys

import osmosis_ai.rollout.integrations.agents.openai_agents as adapter

LOADED = "\nimport sys\nprint(*{name.partition('.')[0] for name in sys.modules})"


def loaded_by(code: str) -> set[str]:
    """The top-level modules that a fresh interpreter has after `code`."""
    run = subprocess.run(
        [sys.executable, "-c", code + LOADED], capture_output=True, text=True, check=True
    )
    return set(run.stdout.split())


def test_all_names_every_public_object() -> None:
    """`__all__` holds the four promised names and the module offers no other."""
    assert adapter.__all__ == [
        "OsmosisAgent",
        "OsmosisMemorySession",
        "OsmosisRolloutModel",
        "SessionSampleSource",
    ]
    public = {name for name in vars(adapter) if not name.startswith("_")}
    assert public == set(adapter.__all__)


def test_import_loads_nothing_beside_the_agents_sdk() -> None:
    """No LiteLLM, no second HTTP client, nothing that `agents` does not load by itself."""
    extra = loaded_by(f"import {adapter.__name__}") - loaded_by("import agents")
    assert extra - sys.stdlib_module_names == {"osmosis_ai"}


def test_import_makes_no_trace_exporter() -> None:
    """Traces are kept at home when a rollout begins; an import alone changes nothing."""
    probe = (
        f"import {adapter.__name__}, threading\n"
        "from agents.tracing import processors, setup\n"
        "assert processors._global_exporter is None and setup.GLOBAL_TRACE_PROVIDER is None\n"
        "assert threading.active_count() == 1"
    )
    subprocess.run([sys.executable, "-c", probe], check=True)
