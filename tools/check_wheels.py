"""Check that each wheel of a directory ships its own parts of the namespace, whole, and no more.

A part is a directory with a `py.typed`; the nearest one above a file decides whose file it is.
"""

import sys
import zipfile
from collections.abc import Iterator
from email.parser import Parser
from pathlib import Path, PurePosixPath

NAMESPACE = PurePosixPath("osmosis_ai/rollout")
# Beside the namespace on purpose: pytest imports it everywhere, and with it every parent package.
PLUGIN = {PurePosixPath("osmosis_ai/rollout_pytest.py"): "osmosis_rollout_core"}


def contents(wheel: Path) -> tuple[set[PurePosixPath], set[str], str]:
    """Return a wheel's files, the names in its .dist-info and the text of its METADATA."""
    with zipfile.ZipFile(wheel) as archive:
        paths = [PurePosixPath(name) for name in archive.namelist() if not name.endswith("/")]
        info = next(path.parts[0] for path in paths if path.parts[0].endswith(".dist-info"))
        metadata = archive.read(f"{info}/METADATA").decode()
    files = {path for path in paths if path.parts[0] != info}
    return files, {str(path.relative_to(info)) for path in set(paths) - files}, metadata


def file_problems(
    name: str, files: set[PurePosixPath], owners: dict[PurePosixPath, str]
) -> Iterator[str]:
    """Find the files of a wheel that belong to another one, or to none."""
    for path in sorted(files):
        if PLUGIN.get(path) == name:
            continue
        part = next((parent for parent in path.parents if parent in owners), None)
        if part is None or not part.is_relative_to(NAMESPACE):
            yield f"{name} ships {path}, which lies in no part of {NAMESPACE}"
        elif owners[part] != name:
            yield f"{name} ships {path}, which belongs to {owners[part]}"
    for part, owner in owners.items():
        if owner == name and part / "__init__.py" not in files:
            yield f"{name} ships {part} without an __init__.py"


def metadata_problems(name: str, info: set[str], text: str) -> Iterator[str]:
    """Find what a wheel does not say about itself."""
    metadata = Parser().parsestr(text)
    if "licenses/LICENSE" not in info:
        yield f"{name} ships no licence"
    if not metadata["Requires-Python"]:
        yield f"{name} does not say which Pythons it supports"
    if not str(metadata.get_payload()).strip():
        yield f"{name} has no description"


def problems(wheels: list[Path]) -> Iterator[str]:
    """Go through the wheels and yield what is wrong with them."""
    shipped = {wheel.name.split("-")[0]: contents(wheel) for wheel in wheels}
    owners: dict[PurePosixPath, str] = {}
    for name, (files, _, _) in shipped.items():
        for part in (path.parent for path in files if path.name == "py.typed"):
            if part in owners:
                yield f"both {owners[part]} and {name} ship {part}/py.typed"
            owners[part] = name
    for name, (files, info, metadata) in shipped.items():
        if name not in owners.values():
            yield f"{name} ships no py.typed"
        yield from file_problems(name, files, owners)
        yield from metadata_problems(name, info, metadata)


if __name__ == "__main__":
    found = sorted(Path(sys.argv[1]).glob("*.whl"))
    sys.exit("\n".join(problems(found)) or None if found else f"no wheels in {sys.argv[1]}")
