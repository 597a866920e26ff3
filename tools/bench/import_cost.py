"""Measure what importing a package costs, as a multiple of the least it could cost.

The least is for core a module that imports asyncio and defines one pydantic model, and for an
adapter its framework alone. Both run as whole processes, in turns; the medians of CPU time (user
and system) and of peak memory are compared.

    nox -s bench -- import_cost [core strands openai-agents] [--runs 25]

The exit status is 1 when a ratio is above its limit.
"""

import argparse
import os
import statistics
import sys
from dataclasses import dataclass


@dataclass(frozen=True)
class Import:
    """What is imported, the least it could cost, and the highest ratio that passes."""

    ours: str
    least: str
    limit: float


IMPORTS = {
    "core": Import(
        "import osmosis_ai.rollout",
        "import asyncio, pydantic\nclass Model(pydantic.BaseModel):\n    value: int = 0",
        1.3,
    ),
    "strands": Import(
        "import osmosis_ai.rollout.integrations.agents.strands", "import strands", 1.1
    ),
    "openai-agents": Import(
        "import osmosis_ai.rollout.integrations.agents.openai_agents", "import agents", 1.1
    ),
}


@dataclass(frozen=True)
class Cost:
    """What one process took: CPU in milliseconds, peak resident memory in MiB."""

    cpu: float
    memory: float


def run(code: str) -> Cost:
    """Run `code` in a fresh interpreter, which is the one that runs this script."""
    pid = os.posix_spawn(sys.executable, [sys.executable, "-c", code], os.environ)
    _, status, usage = os.wait4(pid, 0)
    if status:
        sys.exit(f"the measured process failed: {code}")
    # macOS counts in bytes, Linux in KiB.
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return Cost((usage.ru_utime + usage.ru_stime) * 1000, usage.ru_maxrss / unit)


def median(costs: list[Cost]) -> Cost:
    """Return the median of each figure."""
    return Cost(
        statistics.median(cost.cpu for cost in costs),
        statistics.median(cost.memory for cost in costs),
    )


def passes(name: str, runs: int) -> bool:
    """Measure, print a table and tell whether both ratios are within the limit."""
    subject = IMPORTS[name]
    for code in (subject.least, subject.ours):
        run(code)  # writes the bytecode, and warms the file cache
    pairs = [(run(subject.least), run(subject.ours)) for _ in range(runs)]
    least, ours = median([pair[0] for pair in pairs]), median([pair[1] for pair in pairs])
    cpu, memory = ours.cpu / least.cpu, ours.memory / least.memory
    print(f"{name:16}{'CPU ms':>8}{'peak MiB':>10}")
    print(f"{'least':16}{least.cpu:8.0f}{least.memory:10.1f}")
    print(f"{'ours':16}{ours.cpu:8.0f}{ours.memory:10.1f}")
    print(f"{'ratio':16}{cpu:8.2f}{memory:10.2f}")
    return max(cpu, memory) <= subject.limit


def main() -> int:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(IMPORTS))
    parser.add_argument("--runs", type=int, default=25, help="processes of each kind")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in IMPORTS]:
        parser.error(f"unknown: {', '.join(unknown)}; known: {', '.join(IMPORTS)}")
    return 0 if all([passes(name, options.runs) for name in options.names or ["core"]]) else 1


if __name__ == "__main__":
    sys.exit(main())
