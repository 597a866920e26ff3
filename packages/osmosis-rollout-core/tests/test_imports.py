"""What importing core does not import."""

import json
import subprocess
import sys

# Optional for everyone who only defines workflows and graders.
OPTIONAL = {"aiohttp", "httpx", "fastapi", "strands", "agents", "typer", "rich", "anyio", "pytest"}


def imported_by(code: str) -> set[str]:
    """Return the names of all modules in a fresh interpreter that ran `code`."""
    code += "; import json, sys; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    return set(json.loads(done.stdout))


def test_core_imports_nothing_optional() -> None:
    assert not imported_by("import osmosis_ai.rollout, osmosis_ai.rollout.policy") & OPTIONAL


def test_the_testing_part_adds_only_the_standard_library() -> None:
    added = imported_by("import osmosis_ai.rollout.testing") - imported_by(
        "import osmosis_ai.rollout"
    )
    roots = {name.partition(".")[0] for name in added}
    assert roots <= sys.stdlib_module_names | {"osmosis_ai"}
