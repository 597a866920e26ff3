"""The main job with agents written in frameworks: the same verdicts, the same documents."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gsm8k import CORRECT, DATASET, DEMO, SOLUTIONS

from osmosis_ai.rollout.trajectory import Trajectory

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module", params=["main_strands.py", "main_openai_agents.py"])
def run(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    eval_in: Callable[[Path], Any],
) -> Any:
    """The demo's evaluation with one of the agents."""
    command = eval_in(tmp_path_factory.mktemp("demo"))
    return command(DATASET, f"{DEMO / request.param}:app", f"--replay={SOLUTIONS}")


def test_the_four_counts(run: Any) -> None:
    """The grader comes to the published counts."""
    assert run.status == 0, run.stderr
    numbers = run.metrics["by_model"]
    assert {model: numbers[model]["passed"] for model in numbers} == CORRECT
    assert {numbers[model]["graded"] for model in numbers} == {200}


def test_every_trajectory(run: Any) -> None:
    """All 800 documents hold the conversation as it was replayed, and the agent's tool."""
    recorded = [json.loads(line) for line in SOLUTIONS.read_text("utf-8").split("\n") if line]
    for result in run.results:
        path = run.output / "rollouts" / result["rollout_id"] / "trajectory.json"
        document = Trajectory.model_validate_json(path.read_bytes())
        assert document.agent.tool_definitions is not None
        assert document.agent.tool_definitions[0]["function"]["name"] == "calculator"
        steps = [step for step in document.steps if step.source == "agent"]
        assert {step.model_name for step in steps} == {result["model"]}
        solution = recorded[result["row"]][result["model"]]["solution"]
        calls = [call for step in steps for call in step.tool_calls or []]
        marks = re.findall(r"<<([^<>=]+)=[^<>]*>>", solution)
        assert [call.arguments for call in calls] == [{"expression": mark} for mark in marks]
        said = "".join(str(step.message) for step in steps)
        assert said == re.sub(r"<<[^<>=]+=[^<>]*>>", "", solution)
