"""Signals to a real uvicorn process: what runs gets its time, and the process ends."""

import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from osmosis_ai.rollout.types import POLLING_LEASE_HEADER

from .harness import BODY

MAIN = """
import asyncio
import threading
from contextlib import asynccontextmanager
from osmosis_ai.rollout import AgentWorkflow, ExecutionBackend, LocalBackend
from osmosis_ai.rollout.server import create_rollout_server

class Stubborn(ExecutionBackend):
    async def execute(self, request):
        print("began", request.prompt[0]["content"], flush=True)
        while True:
            try:
                await asyncio.sleep(0.2)
            except asyncio.CancelledError:
                print("swallowed", flush=True)

class Workflow(AgentWorkflow):
    async def run(self, ctx):
        kind = ctx.prompt[0]["content"]
        print("began", kind, flush=True)
        try:
            if kind == "short":
                await asyncio.sleep(1)
            elif kind == "endless":
                await asyncio.Event().wait()
            elif kind == "threaded":
                await asyncio.to_thread(threading.Event().wait)
            while kind == "stubborn":
                try:
                    await asyncio.sleep(0.2)
                except asyncio.CancelledError:
                    print("swallowed", flush=True)
            if kind == "leaking":
                ctx.metadata["task"] = LEAKED = asyncio.create_task(asyncio.sleep(1000))
                LEAKS.append(LEAKED)
        finally:
            print("ended", kind, "open" if OPEN else "closed", flush=True)
        return ctx.prompt

LEAKS = []
OPEN = []

@asynccontextmanager
async def lifespan(app):
    OPEN.append("the database")
    yield
    await asyncio.sleep(0)
    OPEN.clear()
    print("closed", flush=True)

app = create_rollout_server(backend=LocalBackend(workflow=Workflow), lifespan=lifespan)
stubborn_app = create_rollout_server(backend=Stubborn(), lifespan=lifespan)
"""


SIGNALS = [signal.SIGTERM, signal.SIGINT]


@dataclass
class Process:
    """A server in a process of its own."""

    process: subprocess.Popen[str]
    port: int = 0
    lines: list[str] = field(default_factory=list[str])
    _news: threading.Condition = field(default_factory=threading.Condition)

    def read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._news:
                self.lines.append(line.rstrip())
                self._news.notify_all()

    def wait_for(self, text: str) -> str:
        def found() -> str | None:
            return next((line for line in self.lines if re.search(text, line)), None)

        with self._news:
            assert self._news.wait_for(found, timeout=30), self.lines
        line = found()
        assert line is not None
        return line

    def start(self, kind: str) -> dict[str, Any]:
        body: dict[str, Any] = {
            **BODY,
            "initial_messages": [{"role": "user", "content": kind}],
            "metadata": {},
        }
        answer = httpx.post(f"http://127.0.0.1:{self.port}/rollout", json=body, trust_env=False)
        assert answer.status_code == 202
        self.wait_for(f"began {kind}")
        accepted: dict[str, Any] = answer.json()
        return accepted

    def stop(self, *signals: signal.Signals) -> float:
        """Send the signals and return how long the process took to end, in seconds."""
        begun = time.monotonic()
        for signum in signals:
            self.process.send_signal(signum)
            time.sleep(0.5 if len(signals) > 1 else 0)
        self.process.wait(timeout=50)
        return time.monotonic() - begun


@contextmanager
def server(tmp_path: Path, app: str = "app") -> Generator[Process]:
    (tmp_path / "main.py").write_text(textwrap.dedent(MAIN))
    command = [sys.executable, "-m", "uvicorn", f"main:{app}", "--port", "0"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        started = Process(process)
        reader = threading.Thread(target=started.read)
        reader.start()
        try:
            line = started.wait_for("Uvicorn running on")
            port = re.search(r":(\d+) ", line)
            assert port is not None
            started.port = int(port[1])
            yield started
        finally:
            process.kill()
            reader.join()


@pytest.mark.parametrize("signum", SIGNALS)
def test_b21_a_short_rollout_ends_before_the_users_resources_close(
    tmp_path: Path, signum: signal.Signals, artifact_root: Path
) -> None:
    with server(tmp_path) as process:
        accepted = process.start("short")
        process.stop(signum)
    ends = [line for line in process.lines if line.startswith(("ended", "closed"))]
    assert ends == ["ended short open", "closed"]
    assert (artifact_root / accepted["rollout_id"] / "trajectory.json").exists()


@pytest.mark.parametrize("signum", SIGNALS)
def test_b21_nothing_that_runs_on_holds_up_the_exit(tmp_path: Path, signum: signal.Signals) -> None:
    with server(tmp_path) as process:
        for kind in ("endless", "stubborn", "leaking", "threaded"):
            process.start(kind)
        assert process.stop(signum) < 35
    assert "ended endless open" in process.lines
    assert "swallowed" in process.lines
    assert "closed" in process.lines


@pytest.mark.parametrize("signum", SIGNALS)
def test_b21_a_backend_that_ignores_its_cancellation_is_left_alone(
    tmp_path: Path, signum: signal.Signals
) -> None:
    with server(tmp_path, "stubborn_app") as process:
        process.start("anything")
        process.stop(signum, signum)
    assert "closed" in process.lines
    assert any("ignores its cancellation" in line for line in process.lines)


@pytest.mark.parametrize("signum", SIGNALS)
def test_long_polls_answer_at_the_signal(tmp_path: Path, signum: signal.Signals) -> None:
    with server(tmp_path) as process:
        accepted = process.start("endless")
        url = f"http://127.0.0.1:{process.port}/rollout/{accepted['rollout_id']}/result"
        headers = {POLLING_LEASE_HEADER: accepted["polling_lease_token"]}
        answers: list[httpx.Response] = []

        def poll() -> None:
            answers.append(httpx.get(url, headers=headers, timeout=40, trust_env=False))

        poll()
        assert answers[0].json()["status"] == "running"
        poller = threading.Thread(target=poll)
        poller.start()
        time.sleep(0.5)
        process.process.send_signal(signum)
        poller.join(timeout=8)
        assert not poller.is_alive()
        assert answers[1].json()["status"] == "running"
        process.stop(signum)


@pytest.mark.parametrize("signum", SIGNALS)
def test_a_second_signal_gives_nobody_any_more_time(tmp_path: Path, signum: signal.Signals) -> None:
    with server(tmp_path) as process:
        process.start("endless")
        assert process.stop(signum, signum) < 9
    assert "ended endless open" in process.lines


def test_b21_a_request_inside_during_the_drain_is_503(tmp_path: Path) -> None:
    """A connection that uvicorn waits for can still bring a request."""
    with server(tmp_path) as process:
        process.start("short")
        content = b"x" * 100

        def slowly() -> Generator[bytes]:
            yield content[:50]
            process.process.send_signal(signal.SIGTERM)
            time.sleep(1)
            yield content[50:]

        good = httpx.Request("POST", "http://x", json={**BODY}).content
        content = good
        answer = httpx.post(
            f"http://127.0.0.1:{process.port}/rollout",
            content=slowly(),
            headers={"Content-Length": str(len(good))},
            timeout=30,
            trust_env=False,
        )
        process.process.wait(timeout=40)
    assert answer.status_code == 503
    assert answer.json()["detail"][0]["type"] == "shutting_down"
