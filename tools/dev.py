"""Run the project's demo or its checks: set up what they need inside the clone, then start nox.

    python3 tools/dev.py demo [arguments of the demo]
    python3 tools/dev.py test [arguments of pytest]

Standard library only, for any CPython >= 3.12 with venv and pip. An older one must still be able to
parse this file in order to say so: no syntax here that is newer than Python 3.6.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

if sys.version_info < (3, 12):  # noqa: UP036 - whoever starts this may have an older one
    sys.exit(
        f"tools/dev.py needs Python 3.12 or newer, and this is {sys.version.split()[0]}"
        f" ({sys.executable}): start it with a newer one, such as python3.13 tools/dev.py test"
    )

import tomllib

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = ROOT / ".dev"
SCRIPTS = ENVIRONMENT / ("Scripts" if os.name == "nt" else "bin")
PYTHON = str(SCRIPTS / "python")
NOX_ARGUMENTS = {"demo": ["--session", "demo"], "test": []}
# Each of these would lead an installation or an import past the clone's environments.
MISLEADING = ("PIP_PREFIX", "PIP_TARGET", "PIP_USER", "PYTHONHOME", "PYTHONPATH")


def requirements() -> list[str]:
    """Read what the noxfile's script header (PEP 723) asks for."""
    noxfile = (ROOT / "noxfile.py").read_text(encoding="utf-8")
    header = re.search(r"(?m)^# /// script$\n((?:^#.*$\n)+?)^# ///$", noxfile)
    assert header, "noxfile.py has no script header"
    toml = "\n".join(line[1:].strip() for line in header.group(1).splitlines())
    dependencies: list[str] = tomllib.loads(toml)["dependencies"]
    return dependencies


def set_up(environ: dict[str, str]) -> None:
    """Make the environment, unless the one at hand is complete and for the same needs."""
    needs = "\n".join([*requirements(), sys.version, sys.base_prefix, str(ENVIRONMENT)])
    # Written last, so that an environment which was interrupted on its way is made anew.
    stamp = ENVIRONMENT / "complete"
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == needs:
        return
    print(f"Setting up nox and uv in {ENVIRONMENT} ...", flush=True)
    for command in (
        [sys.executable, "-m", "venv", "--clear", str(ENVIRONMENT)],
        [PYTHON, "-m", "pip", "install", "--quiet", *requirements()],
    ):
        if subprocess.call(command, env=environ):
            sys.exit(f"The set-up failed, see above: {' '.join(command)}")
    stamp.write_text(needs, encoding="utf-8")


def main(arguments: list[str]) -> int:
    """Do what the first argument names and return the exit status."""
    if not arguments or arguments[0] not in NOX_ARGUMENTS:
        print("usage: python3 tools/dev.py demo|test [arguments]", file=sys.stderr)
        return 2
    task, *rest = arguments
    environ = {key: value for key, value in os.environ.items() if key not in MISLEADING}
    set_up(environ)
    # First on the path, so that nox finds the running interpreter even where it has no python3.x.
    environ["PATH"] = os.pathsep.join([str(SCRIPTS), environ.get("PATH", os.defpath)])
    noxfile = ["--noxfile", str(ROOT / "noxfile.py")]
    command = [PYTHON, "-m", "nox", *noxfile, *NOX_ARGUMENTS[task], "--", *rest]
    if os.name == "nt":
        return subprocess.call(command, env=environ)
    # In this process's place: signals reach nox, and so its sessions, without a stop in between.
    os.execve(PYTHON, command, environ)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
