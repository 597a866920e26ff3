"""Fixtures of the tests across packages: the command in a process of its own, as users run it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

# What several tests know of the demo's data, `gsm8k.py`, is beside this.
sys.path.insert(0, str(Path(__file__).parent))


@dataclass(frozen=True)
class Run:
    """What a run of `osmosis-rollout eval` left behind."""

    status: int
    stdout: str
    stderr: str
    output: Path

    @property
    def results(self) -> list[dict[str, Any]]:
        lines = (self.output / "index.jsonl").read_text(encoding="utf-8").split("\n")
        return [json.loads(line) for line in lines if line]

    @property
    def metrics(self) -> dict[str, Any]:
        return json.loads((self.output / "metrics.json").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class EvalCommand:
    """Runs `osmosis-rollout eval` in a directory."""

    folder: Path

    @property
    def output(self) -> Path:
        return self.folder / "run"

    def line(self, *arguments: str | Path) -> list[str]:
        """Return the command line."""
        command = [sys.executable, "-m", "osmosis_ai.rollout.eval", "eval"]
        return [*command, *map(str, arguments), f"--output={self.output}"]

    def start(self, *arguments: str | Path, **environment: str) -> subprocess.Popen[str]:
        """Start it, and leave it to the test."""
        return subprocess.Popen(
            self.line(*arguments),
            cwd=self.folder,
            env=os.environ | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def finish(self, process: subprocess.Popen[str]) -> Run:
        """Wait for its end."""
        try:
            stdout, stderr = process.communicate(timeout=240)
        finally:
            process.kill()
        return Run(process.returncode, stdout, stderr, self.output)

    def __call__(self, *arguments: str | Path, **environment: str) -> Run:
        """Run it to its end."""
        return self.finish(self.start(*arguments, **environment))


@pytest.fixture
def anyio_backend() -> str:
    """Run async tests on asyncio."""
    return "asyncio"


@pytest.fixture
def run_eval(tmp_path: Path) -> EvalCommand:
    """Return the command; its working directory is the test's own."""
    return EvalCommand(tmp_path)


@pytest.fixture(scope="session")
def eval_in() -> Callable[[Path], EvalCommand]:
    """Return what makes a command for another directory."""
    return EvalCommand


@pytest.fixture
def dataset(tmp_path: Path) -> Callable[..., Path]:
    """Return what writes a dataset: one row of metadata per argument, with the label 4."""

    def write(*rows: dict[str, Any]) -> Path:
        path = tmp_path / "data.jsonl"
        lines = [json.dumps({"user_prompt": "2+2?", "label": "4", "metadata": row}) for row in rows]
        path.write_text("\n".join(lines), encoding="utf-8")
        return path

    return write
