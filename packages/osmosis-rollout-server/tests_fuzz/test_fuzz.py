"""Requests of every kind, made from the app's own OpenAPI document and against it.

Whatever comes, no answer has a status of 500 or above, each is as documented, and a refused request
leaves nothing behind: neither its values, in the answer or in the log, nor any other trace.
"""

import asyncio
import json
import logging
import threading
import time
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import checks

from osmosis_ai.rollout import AgentWorkflow, LocalBackend
from osmosis_ai.rollout.server import create_rollout_server

pytestmark = pytest.mark.timeout(300)

MARK = "s3cr3t-m4rk"
EXAMPLES = settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
ROUTES = [
    ("POST", "/rollout"),
    ("POST", "/rollout/cancel"),
    ("GET", f"/rollout/{MARK}/result"),
    ("GET", f"/rollout/{MARK}%00/status"),
    ("GET", "/health"),
]


class Echo(AgentWorkflow):
    """Ends at once."""

    async def run(self, ctx: Any) -> list[dict[str, Any]]:
        return ctx.prompt


class Lines(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(self.format(record))


@dataclass
class Target:
    """The server under test."""

    url: str
    root: Path
    http: httpx.Client
    log: Lines = field(default_factory=Lines)

    def state(self) -> tuple[Any, list[str]]:
        """Return what would show that a request left something behind."""
        health: dict[str, Any] = self.http.get("/health").json()
        return health["lifecycle"], sorted(path.name for path in self.root.glob("*"))


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory) -> Generator[Target]:
    """Serve a workflow that ends at once; results are forgotten soon."""
    root = tmp_path_factory.mktemp("root")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("_OSMOSIS_ROLLOUT_ARTIFACT_ROOT", str(root))
        backend = LocalBackend(workflow=Echo)
    app = create_rollout_server(
        backend=backend, result_wait_timeout_sec=0.05, result_retention_sec=5.0
    )
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="info"))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()))
    thread.start()
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    with httpx.Client(base_url=url, trust_env=False, timeout=30) as http:
        target = Target(url, root, http)
        for name in ("", "uvicorn"):
            logging.getLogger(name).addHandler(target.log)
        yield target
        for name in ("", "uvicorn"):
            logging.getLogger(name).removeHandler(target.log)
    server.should_exit = True
    thread.join()


OPERATIONS = [
    ("POST", "/rollout"),
    ("POST", "/rollout/cancel"),
    ("GET", "/rollout/{rollout_id}/result"),
    ("GET", "/rollout/{rollout_id}/status"),
    ("GET", "/health"),
]
DOCUMENTED = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
]


# Schemathesis draws from the random module where Hypothesis would rather do so itself.
@pytest.mark.filterwarnings("ignore:Do not use the .random. module")
@pytest.mark.parametrize(("method", "path"), OPERATIONS)
@pytest.mark.parametrize("mode", ["positive", "negative"])
def test_every_answer_is_as_documented(target: Target, method: str, path: str, mode: str) -> None:
    """Requests as the app's description has them, and others that break it."""
    api = schemathesis.openapi.from_url(f"{target.url}/openapi.json")
    wanted = schemathesis.GenerationMode(mode)
    if path == "/health" and mode == "negative":
        pytest.skip("nothing in this request can be wrong")

    @given(case=api[path][method].as_strategy(generation_mode=wanted))
    @EXAMPLES
    def ask(case: schemathesis.Case) -> None:
        case.call_and_validate(checks=DOCUMENTED)

    ask()


def test_every_route_is_asked(target: Target) -> None:
    """The description has no other routes than the ones above."""
    paths = target.http.get("/openapi.json").json()["paths"]
    described = {(method.upper(), path) for path in paths for method in paths[path]}
    assert described == set(OPERATIONS)


# JSON of any form in which every text and every key is a value that must not come back.
MARKED = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.just(MARK),
    lambda children: (
        st.lists(children, max_size=3)
        | st.dictionaries(st.just(MARK) | st.sampled_from(["role", "content"]), children)
    ),
    max_leaves=6,
)
FIELDS = [
    "initial_messages",
    "chat_completions_url",
    "rollout_id",
    "label",
    "metadata",
    "extra_fields",
    "llm_api_key",
    "grade",
    "agent_timeout_sec",
    "grader_timeout_sec",
    "completion_callback_url",
    "grader_callback_url",
    "controller_api_key",
    "ids",
    "prefix",
    "all",
]
BODIES = st.one_of(
    st.dictionaries(st.sampled_from(FIELDS), MARKED).map(json.dumps).map(str.encode),
    MARKED.map(json.dumps).map(str.encode),
    st.binary(max_size=60).map(lambda some: MARK.encode() + some),
    st.text(max_size=60).map(lambda text: f'{{"llm_api_key": "{MARK}{text}'.encode()),
)
HEADERS = st.dictionaries(
    st.sampled_from(["Idempotency-Key", "X-Osmosis-Rollout-Lease", "Content-Type", "Expect"]),
    st.just(MARK) | st.sampled_from(["application/json", "text/plain; charset=utf-16"]),
)


@given(route=st.sampled_from(ROUTES), body=BODIES, headers=HEADERS)
@EXAMPLES
def test_a_refused_request_leaves_nothing_behind(
    target: Target, route: tuple[str, str], body: bytes, headers: dict[str, str]
) -> None:
    """No submitted value in the answer or in the log, and no rollout, no folder, no key."""
    before = target.state()
    target.log.texts.clear()
    answer = target.http.request(*route, content=body, headers=headers)
    assert answer.status_code < 500
    if answer.status_code < 400:
        return
    assert MARK not in answer.text
    assert MARK not in str(answer.headers)
    # The access log tells the path, which is the one part of a request that is no secret.
    assert not [line for line in target.log.texts if MARK in line.replace(route[1], "")]
    after = target.state()
    assert after[0]["active_rollouts"] <= before[0]["active_rollouts"]
    assert after[1] == before[1]
