"""Check that installed packages import: every part of them, each in a fresh interpreter.

    check_install.py [--without-extras] DISTRIBUTION...

Besides, core's public module must load nothing but the standard library, pydantic and itself. With
`--without-extras`, a part that needs an extra may refuse to load if it names `DISTRIBUTION[extra]`.
"""

import argparse
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYDANTIC = "import pydantic\nclass Model(pydantic.BaseModel):\n    number: int"
LOADED = "\nimport sys\nprint(*{name.partition('.')[0] for name in sys.modules})"


def run(code: str) -> "subprocess.CompletedProcess[str]":
    """Run code in a fresh interpreter that sees installed packages only."""
    return subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True)


def modules(distribution: str) -> Iterator[str]:
    """Yield the dotted names of the packages in a distribution's source tree."""
    source = ROOT / "packages" / distribution / "src"
    for marker in sorted(source.rglob("__init__.py")):
        yield ".".join(marker.parent.relative_to(source).parts)


def import_problems(distribution: str, *, without_extras: bool) -> Iterator[str]:
    """Import each package of a distribution."""
    for module in modules(distribution):
        result = run(f"import {module}")
        named = f"{distribution}[" in result.stderr
        if result.returncode and not (without_extras and named):
            yield f"import {module} failed:\n{result.stderr}"


def weight_problems() -> Iterator[str]:
    """Find what importing core's public module loads beyond what pydantic alone does."""
    allowed = {*run(PYDANTIC + LOADED).stdout.split(), *sys.stdlib_module_names, "osmosis_ai"}
    for name in sorted({*run("import osmosis_ai.rollout" + LOADED).stdout.split()} - allowed):
        yield f"import osmosis_ai.rollout loads {name}"


def main() -> str | None:
    """Return what is wrong, or None."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--without-extras", action="store_true")
    parser.add_argument("distributions", nargs="+")
    arguments = parser.parse_args()
    problems = [*weight_problems()]
    for name in arguments.distributions:
        problems += import_problems(name, without_extras=arguments.without_extras)
    return "\n".join(problems) or None


if __name__ == "__main__":
    sys.exit(main())
