"""Check what the packages' files must agree on: versions, changelogs, licences, READMEs."""

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CORE = "osmosis-rollout-core"
# "## [0.1.0] - Unreleased" or "## [0.1.0] - 2026-11-30"
HEADING = re.compile(r"^## \[(?P<version>[^\]]+)\] - (?P<date>Unreleased|\d{4}-\d\d-\d\d)$", re.M)


def changelog_problems(package: Path, version: str) -> Iterator[str]:
    """Compare the changelog's newest heading with the version; every section must say something."""
    text = (package / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = [line for line in text.splitlines() if line.startswith("## ")]
    newest = HEADING.search(text)
    if newest is None or newest[0] != headings[0]:
        yield f"its first heading must read '## [{version}] - YYYY-MM-DD', or '- Unreleased'"
        return
    if newest["version"] != version:
        yield f"the newest heading is {newest['version']}, pyproject.toml has {version}"
    for section in re.split(r"^#{2,3} ", text, flags=re.M)[1:]:
        title, _, body = section.partition("\n")
        if not title.startswith("[") and not body.strip():
            yield f"the section '{title}' is empty"


def licence_problems(package: Path) -> Iterator[str]:
    """Compare the package's copy of the licence with the one at the top."""
    copy = package / "LICENSE"
    # A link would be no copy: the build refuses one that leaves the package.
    if copy.is_symlink() or copy.read_bytes() != (ROOT / "LICENSE").read_bytes():
        yield "must be a copy of the LICENSE at the top"


def project_problems(package: Path, project: dict[str, Any], core: str) -> Iterator[str]:
    """Check the name, and that a part's range of core versions holds the core beside it."""
    if project["name"] != package.name:
        yield f"the name {project['name']} differs from the directory's"
    if package.name == CORE:
        return
    wanted = next((r for r in project["dependencies"] if r.startswith(CORE)), "")
    bounds = re.fullmatch(rf"{CORE}>=(\d+\.\d+\.\d+),<(\d+\.\d+)", wanted)
    if bounds is None:
        yield f"must ask for {CORE}>=X.Y.Z,<X.Y"
    elif not numbers(bounds[1]) <= numbers(core) < numbers(bounds[2]):
        yield f"its range of {CORE} leaves out the present {core}"


def readme_problems(package: Path) -> Iterator[str]:
    """Find the import paths that a README's table leaves out: every README names all of them."""
    text = (package / "README.md").read_text(encoding="utf-8")
    for marker in sorted(ROOT.glob("packages/*/src/**/py.typed")):
        path = ".".join(marker.relative_to(ROOT).parts[3:-1])
        if f"| `{path}`" not in text and f", `{path}`" not in text:
            yield f"its table has no `{path}`"


def numbers(version: str) -> list[int]:
    """Return a version's numbers, for comparing."""
    return [int(number) for number in version.split(".")]


def problems() -> Iterator[str]:
    """Go through every package and yield what is wrong, file by file."""
    packages = sorted(path.parent for path in ROOT.glob("packages/*/pyproject.toml"))
    projects = {
        path: tomllib.loads((path / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        for path in packages
    }
    core = projects[ROOT / "packages" / CORE]["version"]
    for package, project in projects.items():
        checks = {
            "pyproject.toml": project_problems(package, project, core),
            "CHANGELOG.md": changelog_problems(package, project["version"]),
            "LICENSE": licence_problems(package),
            "README.md": readme_problems(package),
        }
        for name, found in checks.items():
            yield from (f"packages/{package.name}/{name}: {problem}" for problem in found)
    yield from (f"README.md: {problem}" for problem in readme_problems(ROOT))


if __name__ == "__main__":
    sys.exit("\n".join(problems()) or None)
