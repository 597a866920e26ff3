"""Measure what importing `osmosis_ai.rollout` costs, as a multiple of the least it could cost.

The least is a module that imports asyncio and defines one pydantic model. Both run as whole
processes, in turns; the medians of CPU time (user and system) and of peak memory are compared.

    python tools/bench/import_cost.py [--runs 25] [--limit 1.3]

The exit status is 1 when a ratio is above the limit.
"""

import argparse
import os
import statistics
import sys
from dataclasses import dataclass

LEAST = "import asyncio, pydantic\nclass Model(pydantic.BaseModel):\n    value: int = 0"
OURS = "import osmosis_ai.rollout"


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


def main() -> int:
    """Measure, print a table and tell whether both ratios are within the limit."""
    parser = argparse.ArgumentParser(description="Measure what the import costs.")
    parser.add_argument("--runs", type=int, default=25, help="processes of each kind")
    parser.add_argument("--limit", type=float, default=1.3, help="highest ratio that passes")
    options = parser.parse_args()
    for code in (LEAST, OURS):
        run(code)  # writes the bytecode, and warms the file cache
    pairs = [(run(LEAST), run(OURS)) for _ in range(options.runs)]
    least, ours = median([pair[0] for pair in pairs]), median([pair[1] for pair in pairs])
    cpu, memory = ours.cpu / least.cpu, ours.memory / least.memory
    print(f"{'':24}{'CPU ms':>8}{'peak MiB':>10}")
    print(f"{'asyncio and one model':24}{least.cpu:8.0f}{least.memory:10.1f}")
    print(f"{'osmosis_ai.rollout':24}{ours.cpu:8.0f}{ours.memory:10.1f}")
    print(f"{'ratio':24}{cpu:8.2f}{memory:10.2f}")
    return int(max(cpu, memory) > options.limit)


if __name__ == "__main__":
    sys.exit(main())
