"""What the documentation shows, run as it is written: the public page's samples, the READMEs."""

import asyncio
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from osmosis_ai.rollout.testing import ScriptedPolicy

ROOT = Path(__file__).parents[1]
PROJECT = Path(__file__).parent / "projects" / "documented.py"

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def policy() -> Generator[ScriptedPolicy]:
    """A policy that is always right."""
    with ScriptedPolicy(respond=lambda request: "4") as policy:
        yield policy


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Return what runs a program in a process of its own and returns what it prints."""
    monkeypatch.setenv("_OSMOSIS_ROLLOUT_ARTIFACT_ROOT", str(tmp_path / "artifacts"))

    def run(program: str) -> str:
        command = [sys.executable, "-c", program]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    return run


def blocks(readme: str, language: str) -> list[str]:
    """Return the code blocks of a README."""
    text = (ROOT / readme).read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


@pytest.mark.parametrize(
    ("app", "files"),
    [
        ("app", []),
        ("empty", []),
        ("tracing", ["artifacts/run.log"]),
        ("explicit", ["trajectory.json"]),
    ],
)
def test_the_public_samples_are_served(
    app: str, files: list[str], run_eval: Any, dataset: Callable[..., Path], policy: ScriptedPolicy
) -> None:
    """A workflow that returns nothing succeeds without a sample; files land where they should."""
    run = run_eval(dataset({}), f"{PROJECT}:{app}", f"--chat-url={policy.url}")
    assert [result["status"] for result in run.results] == ["success"], run.stderr
    [result] = run.results
    folder = run.output / "rollouts" / result["rollout_id"]
    written = [path for path in folder.rglob("*") if path.is_file()]
    assert [path.relative_to(folder).as_posix() for path in written] == files
    if app == "tracing":
        assert (folder / "artifacts" / "run.log").read_text() == "started\n"
    if app == "explicit":
        document = json.loads((folder / "trajectory.json").read_bytes())
        assert [step["message"] for step in document["steps"]] == ["2+2?", "done"]
        assert document["extra"]["osmosis"]["sample_metrics"] == {"steps": 1.0}


def test_the_evaluation_of_the_clients_readme(run_eval: Any, policy: ScriptedPolicy) -> None:
    """Its first command, with a model at the base URL that it names."""
    [command] = [
        block
        for block in blocks("packages/osmosis-rollout-client/README.md", "sh")
        if "--base-url" in block
    ]
    line = command.replace("\\\n", " ").replace("http://127.0.0.1:8080/v1", policy.url)
    program, *arguments = shlex.split(line)
    assert (program, arguments.pop(0)) == ("osmosis-rollout", "eval")
    source = PROJECT.with_name("moods.py").read_text(encoding="utf-8")
    (run_eval.folder / "main.py").write_text(source, encoding="utf-8")
    row = '{"user_prompt": "2+2?", "ground_truth": "4"}'
    (run_eval.folder / "questions.jsonl").write_text(row, encoding="utf-8")
    run = run_eval(*arguments)
    assert run.status == 0, run.stderr
    assert run.metrics["passed"] == 4
    assert {request.body["model"] for request in policy.requests} == {"Qwen/Qwen3-8B"}


def test_the_readmes_project(run_eval: Any, policy: ScriptedPolicy) -> None:
    [program] = blocks("README.md", "python")
    [rows] = blocks("README.md", "json")
    (run_eval.folder / "main.py").write_text(program, encoding="utf-8")
    (run_eval.folder / "questions.jsonl").write_text(rows, encoding="utf-8")
    run = run_eval("questions.jsonl", "main.py:app", f"--chat-url={policy.url}")
    assert run.status == 0, run.stderr
    assert run.metrics["passed"] == run.metrics["total"] == 1


def test_the_readme_of_core(runs: Callable[[str], str]) -> None:
    whole, script = blocks("packages/osmosis-rollout-core/README.md", "python")
    assert runs(whole) == "success 1.0\n"
    assert runs(script) == ""


async def test_the_readmes_of_server_and_client(
    runs: Callable[[str], str], policy: ScriptedPolicy, tmp_path: Path
) -> None:
    """The client's program gets its result from the server's app, and its files can be read."""
    project, reading = blocks("packages/osmosis-rollout-server/README.md", "python")
    [program] = blocks("packages/osmosis-rollout-client/README.md", "python")
    main: dict[str, Any] = {}
    exec(project, main)
    server = uvicorn.Server(uvicorn.Config(main["app"], port=0, log_level="warning"))
    serving = asyncio.create_task(server.serve())
    while not server.started:
        assert not serving.done(), serving.result()
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    program = program.replace("http://127.0.0.1:8000", f"http://127.0.0.1:{port}")
    program = program.replace("http://127.0.0.1:8080/v1", policy.url)
    try:
        assert await asyncio.to_thread(runs, program) == "success None\n"
        [folder] = (tmp_path / "artifacts").iterdir()
        reading = reading.replace("r-1", folder.name)
        assert "trajectory.json" in await asyncio.to_thread(runs, reading)
    finally:
        server.should_exit = True
        await serving
