"""Where traces of rollouts go: to the user's processors, and to OpenAI only on request."""

import json
import subprocess
import sys
from typing import Any

import pytest

# A fresh process: the SDK's exporter, its key and its thread are there once for all. Whatever
# leaves the host for OpenAI goes through the "proxy", which only counts.
PROGRAM = """
import asyncio, json, os, socket, threading
from http.server import BaseHTTPRequestHandler, HTTPServer

asked = []

class Proxy(BaseHTTPRequestHandler):
    def do_CONNECT(self):
        asked.append(self.path)
        self.send_error(502)
    def log_message(self, *args):
        pass

proxy = HTTPServer(("127.0.0.1", 0), Proxy)
threading.Thread(target=proxy.serve_forever, daemon=True).start()
os.environ["HTTPS_PROXY"] = f"http://127.0.0.1:{proxy.server_port}"
os.environ["OPENAI_API_KEY"] = "sk-host"

from agents import (
    ModelSettings, RunConfig, Runner, TracingProcessor, add_trace_processor, function_tool,
    set_tracing_export_api_key, trace,
)
from agents.tracing import custom_span
from agents.tracing.processors import default_exporter, default_processor
from osmosis_ai.rollout import RolloutContext
from osmosis_ai.rollout.integrations.agents.openai_agents import (
    OsmosisAgent, OsmosisMemorySession, OsmosisRolloutModel,
)
from osmosis_ai.rollout.testing import ScriptedPolicy, error_reply

class Mine(TracingProcessor):
    def __init__(self):
        self.spans = []
    def on_trace_start(self, trace): pass
    def on_trace_end(self, trace): pass
    def on_span_start(self, span): pass
    def on_span_end(self, span):
        self.spans.append(span.export())
    def shutdown(self): pass
    def force_flush(self): pass

async def rollout(number, reply="4", **kwargs):
    with ScriptedPolicy(reply) as policy, RolloutContext(policy.url, rollout_id=f"r-{number}"):
        settings = ModelSettings(
            temperature=0.5, extra_headers={"X-Key": "sek-ret"}, extra_query={"key": "sek-ret"}
        )
        agent = OsmosisAgent(name="a", model=OsmosisRolloutModel(), model_settings=settings)
        session = OsmosisMemorySession()
        try:
            await Runner.run(agent, "2+2?", session=session, **kwargs)
        except Exception:
            pass

def sent(step):
    before = len(asked)
    step()
    default_processor().force_flush()
    return len(asked) - before

def outside():
    with trace("mine"), custom_span("part"):
        pass

mine = Mine()
add_trace_processor(mine)
default_exporter().max_retries = 1
result = {
    "rollout": sent(lambda: asyncio.run(rollout(1))),
    "spans": mine.spans[:],
    "outside": sent(outside),
    "rollout after that": sent(lambda: asyncio.run(rollout(2))),
}
mine.spans.clear()
private = RunConfig(trace_include_sensitive_data=False)
asyncio.run(rollout(3, error_reply(400, "no such thing"), run_config=private))
result["private"] = mine.spans[:]
mine.spans.clear()
off = RunConfig(tracing_disabled=True)
asyncio.run(rollout(4, run_config=off))
result["disabled"] = mine.spans[:]
keyed = RunConfig(tracing={"api_key": "sk-meant"})
result["run with a key"] = sent(lambda: asyncio.run(rollout(5, run_config=keyed)))
result["rollout again"] = sent(lambda: asyncio.run(rollout(6)))
set_tracing_export_api_key("sk-meant")
result["rollout with a key"] = sent(lambda: asyncio.run(rollout(7)))
result["hosts"] = sorted(set(asked))
print(json.dumps(result))
"""


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    """What the program saw."""
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def test_keys_are_no_part_of_a_trace(told: dict[str, Any]) -> None:
    """Sampling parameters are told, headers and queries of the request are not."""
    [span] = [span for span in told["spans"] if span["span_data"]["type"] == "generation"]
    assert span["span_data"]["model_config"] == {"temperature": 0.5}
    assert "sek-ret" not in json.dumps(told)


def test_nothing_leaves_the_host(told: dict[str, Any]) -> None:
    """A host's `OPENAI_API_KEY` is no permission: nothing of a rollout is sent anywhere."""
    assert told["rollout"] == told["rollout after that"] == told["rollout again"] == 0


def test_what_the_user_turned_on_is_sent(told: dict[str, Any]) -> None:
    """Traces from outside of rollouts, and those with a key that was meant, go to OpenAI."""
    assert told["outside"] > 0
    assert told["run with a key"] > 0
    assert told["rollout with a key"] > 0
    assert told["hosts"] == ["api.openai.com:443"]


def test_processors_of_the_user_see_the_calls(told: dict[str, Any]) -> None:
    """A call to the policy is a generation with its input, output and parameters."""
    [span] = [one for one in told["spans"] if one["span_data"]["type"] == "generation"]
    assert span["span_data"]["model"] == "osmosis-rollout"
    assert span["span_data"]["input"] == [{"role": "user", "content": "2+2?"}]
    assert span["span_data"]["output"] == [{"role": "assistant", "content": "4"}]
    assert span["error"] is None


def test_sensitive_data_stays_out(told: dict[str, Any]) -> None:
    """`trace_include_sensitive_data=False` is respected, and so is `tracing_disabled`."""
    [span] = [one for one in told["private"] if one["span_data"]["type"] == "generation"]
    assert not span["span_data"]["input"]
    assert not span["span_data"]["output"]
    assert span["error"] == {"message": "The policy gave no reply", "data": None}
    assert "no such thing" not in json.dumps(span)
    assert told["disabled"] == []
