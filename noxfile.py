#!/usr/bin/env -S uv run --script

# /// script
# requires-python = ">=3.12"
# dependencies = ["nox[uv]>=2026.8.10"]
# ///

"""Check every package alone, with its oldest dependencies, and all of them together.

`nox -l` lists the sessions, `nox` runs the daily ones, and one alone is run by its whole name:
`nox -s "tests-3.13(osmosis-rollout-core)"`. What follows `--` goes to pytest, or to the demo.
"""

import argparse
import json
import shutil
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

import nox

nox.needs_version = ">=2026.8.10"
nox.options.default_venv_backend = "uv"
nox.options.reuse_venv = "yes"
nox.options.error_on_external_run = True
# A machine has the interpreters that it has, on CI too: a missing one skips its sessions.
nox.options.error_on_missing_interpreters = False
nox.options.download_python = "never"

# Each is a directory of packages/; everything else about them is read from their pyproject.toml.
PACKAGES = [
    "osmosis-rollout-core",
    "osmosis-rollout-server",
    "osmosis-rollout-client",
    "osmosis-strands",
    "osmosis-openai-agents",
]
CORE = PACKAGES[0]

ROOT = Path(__file__).parent
DIST = ROOT / "dist"
PROJECTS = {
    name: nox.project.load_toml(f"packages/{name}/pyproject.toml")["project"] for name in PACKAGES
}
RUNNING = f"{sys.version_info.major}.{sys.version_info.minor}"
PYTHONS = list(dict.fromkeys([*nox.project.python_versions({"project": PROJECTS[CORE]}), RUNNING]))
# The JUnit files of this run, for its closing line.
REPORTS: list[Path] = []
# What the tests of this run left behind, documents among it.
LEFT_BY_TESTS: list[Path] = []

RUFF = "ruff==0.17.6"
TYPE_CHECKERS = ["mypy==2.4.1", "pyright[nodejs]==1.1.414"]
HARBOR = "harbor==0.26.0"
FUZZER = "schemathesis==4.32.5"
# Much of what the tests do is waiting: for drains, deadlines and processes.
XDIST = "pytest-xdist>=3.6"

each_package = nox.parametrize("package", PACKAGES, ids=PACKAGES)


def with_extras(name: str) -> str:
    """Return a package's name with all of its extras: `name[a,b]`."""
    extras = ",".join(PROJECTS[name].get("optional-dependencies", {}))
    return f"{name}[{extras}]" if extras else name


def editable(*packages: str) -> list[str]:
    """Return the install arguments for source trees with all of their extras."""
    return [arg for name in packages for arg in ("-e", f"packages/{with_extras(name)}")]


def wheels(*packages: str, extras: bool = True) -> list[str]:
    """Return the install arguments for built wheels, put in afresh."""
    arguments: list[str] = []
    for name in packages:
        wheel = f"{name.replace('-', '_')}-{PROJECTS[name]['version']}-py3-none-any.whl"
        wanted = with_extras(name) if extras else name
        # By its file, so that no index can offer another one in its place.
        arguments += [f"--reinstall-package={name}", f"{wanted} @ {(DIST / wheel).as_uri()}"]
    return arguments


def test_tools(*packages: str) -> list[str]:
    """Return the install arguments for what the tests of these packages need."""
    return [XDIST, *(f"--group=packages/{name}/pyproject.toml:test" for name in packages)]


def with_core(package: str) -> list[str]:
    """Return the packages that a package's own tests may use."""
    return list(dict.fromkeys([CORE, package]))


def core_floor(package: str) -> str:
    """Return the oldest version of core that a package allows."""
    wanted = next(line for line in PROJECTS[package]["dependencies"] if line.startswith(CORE))
    return wanted.removeprefix(f"{CORE}>=").partition(",")[0]


def install(session: nox.Session, *requirements: str) -> None:
    """Install into the session's environment; repair what an interrupted run left behind."""
    unfinished = Path(session.virtualenv.location, ".installing")
    repair = ["--reinstall"] if unfinished.exists() else []
    unfinished.touch()
    session.install(*repair, *requirements)
    unfinished.unlink(missing_ok=True)


def run_pytest(session: nox.Session, *paths: str) -> None:
    """Run pytest and keep its counts, for the closing line, and the files that the tests make."""
    folder = Path(session.create_tmp())
    report = folder / "junit.xml"
    report.unlink(missing_ok=True)
    REPORTS.append(report)
    LEFT_BY_TESTS.append(folder / "tests")
    keep = [f"--basetemp={folder / 'tests'}", "--override-ini=tmp_path_retention_policy=all"]
    workers = ["-n=4", "--dist=worksteal"]
    session.run("pytest", "-q", *workers, f"--junitxml={report}", *keep, *paths, *session.posargs)


def pyright_config(folder: Path) -> Path:
    """Write a configuration that is strict with the packages and basic with what surrounds them."""
    top = Path(*[".."] * len(folder.resolve().relative_to(ROOT.resolve()).parts))
    sources = [str(top / f"packages/{name}/src") for name in PACKAGES]
    tests = [str(top / f"packages/{name}/tests") for name in PACKAGES]
    others = [str(top / name) for name in ("noxfile.py", "tools", "tests_e2e")]
    # A conftest.py makes the helpers beside it importable; the demo and benches are run in place.
    helpers = [
        Path("tools/bench"),
        Path("tools/demo"),
        Path("tests_e2e"),
        *(path.parent.relative_to(ROOT) for path in ROOT.glob("packages/*/tests/**/conftest.py")),
    ]
    settings = {
        "include": [*sources, *tests, *others],
        "extraPaths": [str(top / path) for path in sorted(helpers)],
        "strict": sources,
        "typeCheckingMode": "basic",
        "pythonVersion": "3.12",
    }
    config = folder / "pyrightconfig.json"
    config.write_text(json.dumps(settings), encoding="utf-8")
    return config


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, formatting, changelogs and the copies of the licence."""
    install(session, RUFF)
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")
    session.run("python", "tools/check_packages.py")


@nox.session(default=False)
def dist(session: nox.Session) -> None:
    """Build every package, by way of its sdist, into dist/."""
    shutil.rmtree(DIST, ignore_errors=True)
    for name in PACKAGES:
        session.run("uv", "build", "-q", f"--out-dir={DIST}", f"packages/{name}")


@nox.session(requires=["dist"])
def typecheck(session: nox.Session) -> None:
    """Type-check the packages strictly, on installed wheels, and what surrounds them."""
    install(session, *TYPE_CHECKERS, "nox", *wheels(*PACKAGES), *test_tools(*PACKAGES))
    session.run("mypy", "--package=osmosis_ai.rollout")
    session.run("pyright", f"--project={pyright_config(Path(session.create_tmp()))}")
    # Covers every part: all of them are installed under this one package.
    session.run("pyright", "--ignoreexternal", "--verifytypes", "osmosis_ai.rollout")


@nox.session(requires=["dist"])
@each_package
def build(session: nox.Session, package: str) -> None:
    """Install one wheel alone in a clean environment: its own part, whole, and nothing optional."""
    session.run("python", "tools/check_wheels.py", str(DIST))
    install(session, "--exact", *wheels(*with_core(package), extras=False))
    session.run("python", "tools/check_install.py", "--without-extras", package)


@nox.session(requires=["dist"])
@nox.parametrize("sources", ["parts", "core", "all"], ids=["parts", "core", "all"])
def layouts(session: nox.Session, sources: str) -> None:
    """Import every part with some packages installed as source trees and the others as wheels."""
    parts = [name for name in PACKAGES if name != CORE]
    trees = {"parts": parts, "core": [CORE], "all": PACKAGES}[sources]
    built = [name for name in PACKAGES if name not in trees]
    install(session, *wheels(*built), *editable(*trees))
    session.run("python", "tools/check_install.py", *PACKAGES)


@nox.session(python=PYTHONS)
@each_package
def tests(session: nox.Session, package: str) -> None:
    """Test one package with nothing but core beside it."""
    install(session, *editable(*with_core(package)), *test_tools(package))
    run_pytest(session, f"packages/{package}/tests")


# Not reused: a floor that was lowered must be tried, and an installed newer one would satisfy it.
@nox.session(python=PYTHONS[0], reuse_venv=False)
@each_package
def lowest(session: nox.Session, package: str) -> None:
    """Test one package on the oldest dependencies that it allows."""
    session.install("--resolution=lowest-direct", *editable(*with_core(package)))
    # On their own, so that the tools of the tests are not the oldest ones.
    session.install(*test_tools(package))
    session.run("uv", "pip", "list")
    run_pytest(session, f"packages/{package}/tests")


@nox.session
@nox.parametrize("package", PACKAGES[1:], ids=PACKAGES[1:])
def compat(session: nox.Session, package: str) -> None:
    """Test one package on the oldest core that it allows, as it was released."""
    floor = core_floor(package)
    if floor == PROJECTS[CORE]["version"]:
        session.skip(f"core {floor} is the one in this tree, which the other sessions use")
    released = f"{CORE} @ git+{ROOT.as_uri()}@{CORE}-v{floor}#subdirectory=packages/{CORE}"
    install(session, f"--reinstall-package={CORE}", released, *editable(package))
    session.install(*test_tools(package))
    session.run("uv", "pip", "list")
    run_pytest(session, f"packages/{package}/tests")


@nox.session
def fuzz(session: nox.Session) -> None:
    """Send the server requests of every kind, made from its own description and against it."""
    server = "osmosis-rollout-server"
    install(session, *editable(*with_core(server)), *test_tools(server), FUZZER)
    run_pytest(session, f"packages/{server}/tests_fuzz")


# The daily sessions run these tests as well, among others.
@nox.session(requires=["dist"], default=False)
def docs(session: nox.Session) -> None:
    """Run the code of every README, and of the public documentation, as it is written."""
    install(session, *wheels(*PACKAGES), *test_tools(*PACKAGES))
    adapters = sorted(map(str, Path("packages").glob("*/tests/test_documented.py")))
    run_pytest(session, "tests_e2e/test_documented.py", *adapters)


@nox.session(python=PYTHONS, requires=["dist"])
def e2e(session: nox.Session) -> None:
    """Test the built wheels together, as users install them: both adapters in one environment."""
    install(session, *wheels(*PACKAGES), *test_tools(*PACKAGES))
    session.run("python", "tools/check_install.py", *PACKAGES)
    run_pytest(session, "tests_e2e")


# Harbor and some frameworks exclude each other, so the documents are made in other sessions.
@nox.session(
    requires=[f"e2e-{RUNNING}", *(f"tests-{RUNNING}({name})" for name in PACKAGES), "dist"]
)
def atif(session: nox.Session) -> None:
    """Validate every trajectory document that the tests make with Harbor's own models."""
    server = "osmosis-rollout-server"
    install(session, HARBOR, *wheels(CORE, server), *test_tools(server))
    # Together, so that Harbor looks at the conversions of the server's own tests, too.
    tests = [f"packages/{server}/{folder}" for folder in ("tests_harbor", "tests/trajectory")]
    run_pytest(session, *tests)
    session.run("python", "tools/check_trajectories.py", *map(str, LEFT_BY_TESTS))


@nox.session(requires=["dist"], default=False)
def demo(session: nox.Session) -> None:
    """Run the main job on real data: a server, an agent with a tool, rewards and trajectories."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--agent", default="plain")
    agent = parser.parse_known_args(session.posargs)[0].agent
    # Frameworks are large: none is installed but the one that is asked for.
    ours = (name for name in PACKAGES if name.startswith("osmosis-rollout-"))
    adapter = (name for name in PACKAGES if name == f"osmosis-{agent}")
    install(session, *wheels(*ours, *adapter))
    session.run("python", "tools/demo/run.py", *session.posargs)


@nox.session(requires=["dist"], default=False)
def bench(session: nox.Session) -> None:
    """Run a script of tools/bench on the built wheels: `-- NAME [OPTIONS]`, or agent_rollouts."""
    name, *options = session.posargs or ["agent_rollouts"]
    if name.startswith("-"):
        name, options = "agent_rollouts", session.posargs
    install(session, *wheels(*PACKAGES))
    session.run("python", f"tools/bench/{name}.py", *options)


@nox.session(python=False)
def summary(session: nox.Session) -> None:
    """Say how many tests this run ran."""
    totals: Counter[str] = Counter()
    written = [report for report in REPORTS if report.exists()]
    for suite in (suite for report in written for suite in ET.parse(report).iter("testsuite")):
        for count in ("tests", "failures", "errors", "skipped"):
            totals[count] += int(suite.get(count, 0))
    bad = totals["failures"] + totals["errors"]
    passed = totals["tests"] - bad - totals["skipped"]
    session.log(
        f"{passed} passed, {bad} failed, {totals['skipped']} skipped"
        f" in {len(written)} of {len(REPORTS)} test sessions"
    )


if __name__ == "__main__":
    nox.main()
