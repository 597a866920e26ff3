"""The main job on real data: four models' solutions of 200 problems, graded and archived."""

import json
import re
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gsm8k import CORRECT, DATASET, DEMO, SOLUTIONS

from osmosis_ai.rollout.trajectory import Trajectory

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, eval_in: Callable[[Path], Any]) -> Any:
    """The demo's own evaluation, run once."""
    command = eval_in(tmp_path_factory.mktemp("demo"))
    return command(DATASET, f"{DEMO / 'main.py'}:app", f"--replay={SOLUTIONS}")


@pytest.fixture(scope="module")
def recorded() -> list[dict[str, Any]]:
    """The recorded solutions, in the dataset's order."""
    return [json.loads(line) for line in SOLUTIONS.read_text("utf-8").split("\n") if line]


def test_the_project_is_short() -> None:
    """People read it to learn how a project is written."""
    lines = (DEMO / "main.py").read_text(encoding="utf-8").splitlines()
    assert len(lines) < 100


def test_the_four_counts(run: Any) -> None:
    """The grader finds exactly those solutions correct that their authors did."""
    assert run.status == 0, run.stderr
    numbers = run.metrics["by_model"]
    assert {model: numbers[model]["passed"] for model in numbers} == CORRECT
    assert {numbers[model]["graded"] for model in numbers} == {200}
    for model, correct in CORRECT.items():
        assert f"{model} {correct}/200 ({correct / 2:.1f} %)" in run.stdout
    assert run.metrics["pass_at_k"] == {}


def test_the_four_counts_after_kill_9_and_resume(
    tmp_path: Path, eval_in: Callable[[Path], Any]
) -> None:
    """A run that is lost in the middle, twice, ends with the same counts, each attempt once."""
    command = eval_in(tmp_path)
    arguments = (DATASET, f"{DEMO / 'main.py'}:app", f"--replay={SOLUTIONS}")
    journal = command.output / "results.jsonl"
    for goal in (100, 450):
        process = command.start(*arguments)
        while not journal.exists() or journal.read_bytes().count(b"\n") < goal:
            assert process.poll() is None
            time.sleep(0.01)
        process.kill()
        process.communicate()
    run = command(*arguments)
    assert run.status == 0, run.stderr
    numbers = run.metrics["by_model"]
    assert {model: numbers[model]["passed"] for model in numbers} == CORRECT
    assert len({(result["row"], result["attempt"]) for result in run.results}) == 800
    lines = journal.read_bytes().splitlines()
    rollouts = [json.loads(line)["outcome"]["rollout_id"] for line in lines]
    assert len(rollouts) == len(set(rollouts)) == 800


def test_every_verdict(run: Any, recorded: list[dict[str, Any]]) -> None:
    """Not only the counts agree: each of the 800 verdicts does."""
    verdicts = {(result["row"], result["model"]): result["passed"] for result in run.results}
    assert verdicts == {
        (row, model): solutions[model]["is_correct"]
        for row, solutions in enumerate(recorded)
        for model in CORRECT
    }
    assert len(run.results) == 800


def test_every_trajectory(run: Any, recorded: list[dict[str, Any]]) -> None:
    """All 800 documents are valid ATIF and hold the conversation that was replayed."""
    failed_calls: Counter[str] = Counter()
    for result in run.results:
        path = run.output / "rollouts" / result["rollout_id"] / "trajectory.json"
        document = Trajectory.model_validate_json(path.read_bytes())
        solution: str = recorded[result["row"]][result["model"]]["solution"]
        agent_steps = [step for step in document.steps if step.source == "agent"]
        assert {step.model_name for step in agent_steps} == {result["model"]}
        calls = [call for step in agent_steps for call in step.tool_calls or []]
        marks = re.findall(r"<<([^<>=]+)=[^<>]*>>", solution)
        assert [call.arguments for call in calls] == [{"expression": mark} for mark in marks]
        said = "".join(str(step.message) for step in agent_steps)
        assert said == re.sub(r"<<[^<>=]+=[^<>]*>>", "", solution)
        answers = [
            str(answer.content)
            for step in agent_steps
            for answer in (step.observation.results if step.observation else [])
        ]
        assert len(answers) == len(calls)
        failed_calls[result["model"]] += sum(answer.startswith("error:") for answer in answers)
        assert document.extra is not None
        assert document.extra["osmosis"]["reward"] == result["reward"]
    # Real data: some recorded expressions do not evaluate ("28-2x"), and the agent goes on.
    assert failed_calls.total() == 7


def test_every_trajectory_loads_in_harbor(run: Any) -> None:
    """Harbor's own models take every document."""
    models = pytest.importorskip("harbor.models.trajectories")
    for path in (run.output / "rollouts").glob("*/trajectory.json"):
        models.Trajectory.model_validate_json(path.read_bytes())
