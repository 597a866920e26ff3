"""Evaluate the demo project as a user would, and compare with the published verdicts.

    python tools/demo/run.py [--agent plain|strands|openai-agents] [options of osmosis-rollout eval]

Needs the server and the client with its eval extra, and the adapter of the agent. The policy is
recorded solutions of four models, so nothing is downloaded and every run gives the same counts.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
DATASET = HERE / "data" / "gsm8k_test_200.jsonl"
SOLUTIONS = HERE / "data" / "gsm8k_test_200_solutions.jsonl"
# One project per way of writing the agent.
PROJECTS = {
    "plain": "main.py",
    "strands": "main_strands.py",
    "openai-agents": "main_openai_agents.py",
}


def evaluate(project: str, run: Path, options: list[str]) -> int:
    """Run the command and return its exit status."""
    command = [sys.executable, "-m", "osmosis_ai.rollout.eval", "eval"]
    arguments = [str(DATASET), f"{HERE / project}:app", f"--replay={SOLUTIONS}"]
    return subprocess.call([*command, *arguments, f"--output={run}", *options])


def published(model: str) -> int:
    """Return how many of a model's solutions their authors found correct."""
    with SOLUTIONS.open(encoding="utf-8", newline="\n") as lines:
        return sum(json.loads(line)[model]["is_correct"] for line in lines)


def compare(run: Path) -> bool:
    """Print each model's count beside the published one; tell whether all agree."""
    metrics = json.loads((run / "metrics.json").read_text(encoding="utf-8"))
    print("\nThe grader's verdicts beside the published ones:")
    agreed = True
    for model, numbers in metrics["by_model"].items():
        passed, graded, expected = numbers["passed"], numbers["graded"], published(model)
        print(f"{model} {passed}/{graded} ({100 * passed / graded:.1f} %), published: {expected}")
        agreed = agreed and passed == expected
    return agreed


def show_where_to_look(run: Path) -> None:
    """Print the paths of what the run wrote, with one trajectory as an example."""
    example = min(run.glob("rollouts/*/trajectory.json"))
    print(f"\nLook at {example} (a trajectory per rollout),")
    print(f"{run / 'index.jsonl'} (a line per rollout) and {run / 'metrics.json'}.")


def main() -> int:
    """Run the demo and return its exit status."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0], allow_abbrev=False)
    parser.add_argument("--agent", choices=PROJECTS, default="plain")
    ours, others = parser.parse_known_args()
    run = ROOT / ".demo" / time.strftime("%Y%m%d-%H%M%S")
    if status := evaluate(PROJECTS[ours.agent], run, others):
        return status
    agreed = compare(run)
    show_where_to_look(run)
    return 0 if agreed else 1


if __name__ == "__main__":
    sys.exit(main())
