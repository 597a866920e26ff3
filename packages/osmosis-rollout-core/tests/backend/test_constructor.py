"""What a LocalBackend may be built from."""

import sys
from pathlib import Path
from typing import Any

import pytest

from osmosis_ai.rollout import (
    AgentWorkflow,
    AgentWorkflowConfig,
    AgentWorkflowContext,
    ExecutionRequest,
    Grader,
    GraderConfig,
    GraderContext,
    LocalBackend,
    RolloutStatus,
)

MODULE = """
from osmosis_ai.rollout import *

class Echo(AgentWorkflow):
    async def run(self, ctx):
        return ctx.prompt

class Half(AgentWorkflow):
    pass

class Outer:
    class Judge(Grader):
        async def grade(self, ctx):
            ctx.set_reward(0.5)

config = AgentWorkflowConfig(name="w", concurrency=ConcurrencyConfig(max_concurrent=3))
grader_config = GraderConfig(name="g")
number = 5

def function(ctx): ...
"""


class Echo(AgentWorkflow[AgentWorkflowConfig]):
    """Answers with the prompt."""

    async def run(self, ctx: AgentWorkflowContext[AgentWorkflowConfig]) -> Any:
        return ctx.prompt


class Judge(Grader):
    """Likes everything."""

    async def grade(self, ctx: GraderContext) -> None:
        ctx.set_reward(1)


@pytest.fixture(autouse=True)
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two modules to refer to, one of which cannot be imported."""
    (tmp_path / "user_project.py").write_text(MODULE)
    (tmp_path / "user_broken.py").write_text("raise RuntimeError('no database')")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    for name in ("user_project", "user_broken"):
        monkeypatch.delitem(sys.modules, name, raising=False)


async def test_references() -> None:
    """Each of the four may be a reference, into a class as well."""
    backend = LocalBackend(
        workflow="user_project:Echo",
        workflow_config="user_project:config",
        grader="user_project:Outer.Judge",
        grader_config="user_project:grader_config",
    )
    assert backend.health()["concurrency"]["max_concurrent"] == 3
    outcome = await backend.execute(ExecutionRequest(id="r", prompt=[{"a": 1}], label=""))
    assert outcome.result.status is RolloutStatus.SUCCESS
    assert outcome.result.sample is not None
    assert outcome.result.sample.reward == 0.5


@pytest.mark.parametrize(
    ("reference", "problem"),
    [
        ("user_project", "module:attr"),
        ("user_project:", "module:attr"),
        (":Echo", "module:attr"),
        ("user_project:Echo:run", "module:attr"),
        (".user_project:Echo", "module:attr"),
        ("user project:Echo", "module:attr"),
        ("no_such_module:Echo", "importing no_such_module failed: ModuleNotFoundError"),
        ("user_broken:Echo", "importing user_broken failed: RuntimeError: no database"),
        ("user_project:Missing", "user_project has no attribute Missing"),
        ("user_project:Outer.Missing", "Outer has no attribute Missing"),
        ("user_project:number.x", "has no attribute x"),
    ],
)
@pytest.mark.parametrize("role", ["workflow", "workflow_config", "grader", "grader_config"])
def test_references_that_lead_nowhere(role: str, reference: str, problem: str) -> None:
    """The error names the parameter, the reference and what is wrong with it."""
    arguments: dict[str, Any] = {"workflow": Echo, "grader": Judge, role: reference}
    with pytest.raises(ValueError, match=role) as caught:
        LocalBackend(**arguments)
    assert f"{role}={reference!r}: " in str(caught.value)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"workflow": "user_project:function"}, "expected a subclass of AgentWorkflow, got func"),
        ({"workflow": Echo()}, "workflow: expected a subclass of AgentWorkflow, got Echo"),
        ({"workflow": None}, "workflow: expected a subclass of AgentWorkflow, got NoneType"),
        ({"workflow": Judge}, "workflow: Judge is no subclass of AgentWorkflow"),
        ({"workflow": "user_project:Half"}, "Half is abstract: it does not implement run"),
        ({"workflow": AgentWorkflow}, "AgentWorkflow is abstract: it does not implement run"),
        ({"grader": "user_project:Echo"}, "Echo is no subclass of Grader"),
        ({"grader": Grader}, "Grader is abstract: it does not implement grade"),
        (
            {"workflow_config": AgentWorkflowConfig},
            "expected an instance of AgentWorkflowConfig, got the class AgentWorkflowConfig",
        ),
        ({"workflow_config": GraderConfig(name="g")}, "instance of AgentWorkflowConfig, got Gr"),
        ({"workflow_config": {"name": "w"}}, "instance of AgentWorkflowConfig, got dict"),
        ({"grader_config": "user_project:config"}, "instance of GraderConfig, got AgentWorkflowC"),
    ],
)
def test_wrong_kinds(arguments: dict[str, Any], message: str) -> None:
    """The error names the parameter, what was expected and what it got."""
    complete: dict[str, Any] = {"workflow": Echo, "grader": Judge}
    with pytest.raises(TypeError) as caught:
        LocalBackend(**(complete | arguments))
    assert message in str(caught.value)
    assert str(caught.value).startswith(next(iter(arguments)))


def test_grader_config_without_a_grader() -> None:
    """A forgotten grader is not passed over in silence."""
    with pytest.raises(ValueError, match="without a grader"):
        LocalBackend(workflow=Echo, grader_config=GraderConfig(name="g"))


def test_negative_queue_depth() -> None:
    """A depth below 0 means nothing."""
    with pytest.raises(ValueError, match="max_queue_depth must be at least 0"):
        LocalBackend(workflow=Echo, max_queue_depth=-1)


def test_works_outside_of_an_event_loop() -> None:
    """What needs no loop can be asked for before one runs."""
    backend = LocalBackend(workflow=Echo, max_queue_depth=0)
    assert backend.has_capacity()
    assert backend.rollout_status("r-1") is None
    assert backend.cancel_rollouts(ids=["r-1"]) == {"r-1": "not_found"}
    assert backend.health() == {
        "status": "ok",
        "concurrency": {"max_concurrent": None, "queued": 0, "running": 0},
    }
