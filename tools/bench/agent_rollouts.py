"""Measure agents' rollouts through the server: CPU and rate beside a floor, and a soak.

A rollout is two turns with one tool, and in each turn the policy says so many words (`--words`), a
piece of the stream each. The floor, taken in turns with the server in the same run, is what no
server can save: the framework's own agent on a canned in-process model, plus the same two streaming
requests made bare. Policy, server and client are processes of their own, so that CPU time is the
server's alone. Compare the rows of one run, not runs.

    nox -s bench -- [--rounds N] [--words 4 64] [--concurrency 1 32] [--rollouts N]
    nox -s bench -- --soak 5000
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

QUESTION: Final = {"role": "user", "content": "What is 2 + 2?"}
ARGUMENTS: Final = '{"a": 2, "b": 2}'
SCHEMA: Final = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
}
# Until Python knows the code by heart, and its collector the modules.
WARM_UP: Final = 300
BARE_BODY: Final = {
    "model": "osmosis-rollout",
    "stream": True,
    "messages": [QUESTION],
    "tools": [{"type": "function", "function": {"name": "add", "parameters": SCHEMA}}],
}


def said(words: int) -> list[str]:
    """Return what the policy says in a turn, in the pieces in which it is streamed."""
    return [*(f"word-{number} " for number in range(1, words)), "4"]


# The policy's process.


def serve_policy(words: int) -> None:
    """Answer a question with a tool call and a tool's result with a number, until stdin closes."""
    from osmosis_ai.rollout.testing import PolicyRequest, Reply, ScriptedPolicy, ToolCall, reply

    usage = {"prompt_tokens": 20, "completion_tokens": words, "total_tokens": 20 + words}
    call = reply(said(words), tool_calls=[ToolCall("add", ARGUMENTS, "call_0")], usage=usage)
    answer = reply(said(words), usage=usage)

    def respond(request: PolicyRequest) -> Reply:
        return answer if request.messages[-1]["role"] == "tool" else call

    with ScriptedPolicy(respond=respond) as policy:
        print(policy.url, flush=True)
        sys.stdin.read()


# The server's process.


def strands_app() -> Any:
    """Return a server whose workflow is a Strands agent."""
    from strands import tool

    from osmosis_ai.rollout import AgentWorkflow, AgentWorkflowContext, LocalBackend
    from osmosis_ai.rollout.integrations.agents.strands import (
        OsmosisRolloutModel,
        OsmosisStrandsAgent,
    )
    from osmosis_ai.rollout.server import create_rollout_server

    @tool
    def add(a: int, b: int) -> str:
        """Add two numbers."""
        return str(a + b)

    class Adder(AgentWorkflow):
        async def run(self, ctx: AgentWorkflowContext) -> None:
            agent = OsmosisStrandsAgent(
                model=OsmosisRolloutModel(), messages=ctx.prompt, tools=[add], callback_handler=None
            )
            await agent.invoke_async()

    backend = LocalBackend(workflow=Adder)
    # A soak looks for what is never freed, so results are not kept for long.
    return create_rollout_server(backend=backend, configure_logging=False, result_retention_sec=5.0)


def openai_agents_app() -> Any:
    """Return a server whose workflow is an agent of the OpenAI Agents SDK."""
    from agents import Runner, function_tool

    from osmosis_ai.rollout import AgentWorkflow, AgentWorkflowContext, LocalBackend
    from osmosis_ai.rollout.integrations.agents.openai_agents import (
        OsmosisAgent,
        OsmosisMemorySession,
        OsmosisRolloutModel,
    )
    from osmosis_ai.rollout.server import create_rollout_server

    @function_tool
    def add(a: int, b: int) -> str:
        """Add two numbers."""
        return str(a + b)

    class Adder(AgentWorkflow):
        async def run(self, ctx: AgentWorkflowContext) -> None:
            agent = OsmosisAgent(name="adder", model=OsmosisRolloutModel(), tools=[add])
            prompt: Any = ctx.prompt
            await Runner.run(agent, prompt, session=OsmosisMemorySession())

    backend = LocalBackend(workflow=Adder)
    return create_rollout_server(backend=backend, configure_logging=False, result_retention_sec=5.0)


def serve_rollouts(framework: str) -> None:
    """Serve on a free port; for every line of stdin, print what the process has used so far."""
    import socket

    import uvicorn

    # By its protocol's number, or else asyncio would leave Nagle's algorithm on.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen(1024)
    config = uvicorn.Config(FRAMEWORKS[framework][0](), log_level="warning", access_log=False)
    server = uvicorn.Server(config)

    def report() -> None:
        for _ in sys.stdin:
            print(json.dumps(usage_so_far()), flush=True)
        server.should_exit = True

    threading.Thread(target=report, daemon=True).start()
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    server.run(sockets=[listener])


def usage_so_far() -> dict[str, float]:
    """Return the process's CPU seconds and, on Linux, its resident MB and open descriptors."""
    usage = {"cpu": time.process_time()}
    if sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        usage["mb"] = pages * os.sysconf("SC_PAGE_SIZE") / 1e6
        usage["descriptors"] = len(os.listdir("/proc/self/fd"))
    return usage


# The floor's process.


def strands_floor(words: int) -> Callable[[], Awaitable[object]]:
    """Return what runs Strands' own agent on a model that has its answers at hand."""
    from strands import Agent, tool
    from strands.models import Model

    usage = {"inputTokens": 20, "outputTokens": words, "totalTokens": 20 + words}

    def block(start: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
        return [
            {"contentBlockStart": {"start": start}},
            *({"contentBlockDelta": {"delta": delta}} for delta in deltas),
            {"contentBlockStop": {}},
        ]

    def turn(stop: str, *blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [
            {"messageStart": {"role": "assistant"}},
            *(event for events in blocks for event in events),
            {"messageStop": {"stopReason": stop}},
            {"metadata": {"usage": usage}},
        ]

    text = block({}, *({"text": word} for word in said(words)))
    use = {"toolUse": {"toolUseId": "call_0", "name": "add"}}
    turns = [
        turn("tool_use", text, block(use, {"toolUse": {"input": ARGUMENTS}})),
        turn("end_turn", text),
    ]

    class Canned(Model):
        def update_config(self, **model_config: Any) -> None: ...

        def get_config(self) -> dict[str, Any]:
            return {}

        def structured_output(self, *args: Any, **kwargs: Any) -> Any:
            raise NotImplementedError

        async def stream(self, messages: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            for event in turns[len(messages) > 1]:
                yield event

    @tool
    def add(a: int, b: int) -> str:
        """Add two numbers."""
        return str(a + b)

    def run() -> Awaitable[object]:
        messages: Any = [{"role": "user", "content": [{"text": QUESTION["content"]}]}]
        agent = Agent(model=Canned(), messages=messages, tools=[add], callback_handler=None)
        return agent.invoke_async()

    return run


def openai_agents_floor(words: int) -> Callable[[], Awaitable[object]]:
    """Return what runs the SDK's own agent on a model that has its answers at hand."""
    from agents import Agent, ModelResponse, Runner, Usage, function_tool
    from agents.models.interface import Model
    from openai.types.responses import (
        ResponseFunctionToolCall,
        ResponseOutputMessage,
        ResponseOutputText,
    )

    class Canned(Model):
        async def get_response(self, *, input: Any, **_: Any) -> Any:
            usage = Usage(requests=1, input_tokens=20, output_tokens=words, total_tokens=20 + words)
            text = ResponseOutputText(
                text="".join(said(words)), type="output_text", annotations=[], logprobs=[]
            )
            message = ResponseOutputMessage(
                id="m", content=[text], role="assistant", status="completed", type="message"
            )
            if len(input) > 1:
                return ModelResponse(output=[message], usage=usage, response_id=None)
            call = ResponseFunctionToolCall(
                id="f", call_id="call_0", name="add", arguments=ARGUMENTS, type="function_call"
            )
            return ModelResponse(output=[message, call], usage=usage, response_id=None)

        def stream_response(self, *args: Any, **kwargs: Any) -> Any:
            raise NotImplementedError

    @function_tool
    def add(a: int, b: int) -> str:
        """Add two numbers."""
        return str(a + b)

    def run() -> Awaitable[object]:
        prompt: Any = [QUESTION]
        return Runner.run(Agent(name="adder", model=Canned(), tools=[add]), prompt)

    return run


async def measure_floor(
    framework: str, words: int, concurrency: int, count: int, url: str
) -> float:
    """Return the CPU seconds per rollout of the floor."""
    import httpx

    run_agent = FRAMEWORKS[framework][1](words)
    route = f"{url}/chat/completions"
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(limits=limits, timeout=60) as client:

        async def one() -> None:
            await run_agent()
            for _ in range(2):
                async with client.stream("POST", route, json=BARE_BODY) as response:
                    async for line in response.aiter_lines():
                        if line.startswith("data: {"):
                            json.loads(line[6:])

        await in_turns(one, concurrency, WARM_UP)
        started = time.process_time()
        await in_turns(one, concurrency, count)
        return (time.process_time() - started) / count


# The client, and what is compared.


async def in_turns(one: Callable[[], Awaitable[None]], concurrency: int, count: int) -> None:
    """Do `one` `count` times, `concurrency` at once."""
    waiting = iter(range(count))

    async def worker() -> None:
        for _ in waiting:
            await one()

    await asyncio.gather(*(worker() for _ in range(concurrency)))


async def roll_out(framework: str, server: str, policy: str, concurrency: int, count: int) -> float:
    """Run rollouts through the server and return the seconds that they took."""
    from osmosis_ai.rollout.client import RolloutClient

    client = RolloutClient(url=server)

    async def one() -> None:
        result = await client.run_rollout([QUESTION], policy, os.urandom(8).hex())
        if result.sample is None or len(result.sample.messages) != MESSAGES[framework]:
            sys.exit(f"a rollout failed: {result.err_message}")

    started = time.perf_counter()
    await in_turns(one, concurrency, count)
    elapsed = time.perf_counter() - started
    await client.aclose()
    return elapsed


@contextmanager
def child(*arguments: str, root: str = "") -> Iterator[tuple[str, Callable[[], dict[str, float]]]]:
    """Start this file as a server; yield its URL and what asks it for its usage."""
    environ = {**os.environ, "_OSMOSIS_ROLLOUT_ARTIFACT_ROOT": root}
    command = [sys.executable, __file__, *arguments]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ
    ) as process:
        source, sink = process.stdout, process.stdin
        assert source is not None
        assert sink is not None

        def ask() -> dict[str, float]:
            print(file=sink, flush=True)
            usage: dict[str, float] = json.loads(source.readline())
            return usage

        yield source.readline().strip(), ask
        sink.close()


def floor_in_a_child(
    framework: str, words: int, concurrency: int, count: int, policy: str
) -> float:
    """Return the floor's CPU seconds per rollout, taken in a fresh process."""
    arguments = ["--floor", framework, str(words), str(concurrency), str(count), policy]
    command = [sys.executable, __file__, *arguments]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def compare(framework: str, options: argparse.Namespace, server: str, ask: Any) -> None:
    """Print a row per length of turns and concurrency: CPU per rollout, floor, ratio and rate."""
    columns = f"{'words':>6}{'at once':>8}{'CPU ms':>9}{'floor':>7}{'ratio':>7}{'per s':>8}"
    print(f"{framework:<14}{columns}")
    for words in options.words:
        with child("--policy", str(words)) as (policy, _):
            for concurrency in options.concurrency:
                row = measure(framework, words, concurrency, options, server, ask, policy)
                print(f"{'':<14}{words:>6}{concurrency:>8}{row}", flush=True)


def measure(
    framework: str,
    words: int,
    concurrency: int,
    options: argparse.Namespace,
    server: str,
    ask: Any,
    policy: str,
) -> str:
    """Return one row's numbers."""
    asyncio.run(roll_out(framework, server, policy, concurrency, WARM_UP))
    costs: list[tuple[float, float, float]] = []
    for _ in range(options.rounds):
        before = ask()["cpu"]
        seconds = asyncio.run(roll_out(framework, server, policy, concurrency, options.rollouts))
        cost = (ask()["cpu"] - before) / options.rollouts
        floor = floor_in_a_child(framework, words, concurrency, options.rollouts, policy)
        costs.append((cost, floor, options.rollouts / seconds))
    cost, floor, rate = (statistics.median(column) for column in zip(*costs, strict=True))
    return f"{1e3 * cost:>9.1f}{1e3 * floor:>7.1f}{cost / floor:>7.2f}{rate:>8.1f}"


def soak(framework: str, total: int, server: str, ask: Any, policy: str) -> None:
    """Print memory and open descriptors of the server while `total` rollouts go through it."""
    print(f"{'rollouts':>9}{'MB':>8}{'descriptors':>13}")
    step = max(1, total // 10)
    for done in range(0, total, step):
        asyncio.run(roll_out(framework, server, policy, 32, step))
        usage = ask()
        print(f"{done + step:>9}{usage['mb']:>8.0f}{usage['descriptors']:>13.0f}", flush=True)


# The SDK keeps a turn's words and its call apart.
MESSAGES: Final = {"strands": 4, "openai-agents": 5}
FRAMEWORKS: Final[dict[str, tuple[Callable[[], Any], Callable[[int], Callable[[], Any]]]]] = {
    "strands": (strands_app, strands_floor),
    "openai-agents": (openai_agents_app, openai_agents_floor),
}


def main() -> None:
    """Run the comparison or the soak, or the part of it that a child process is asked for."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--framework", choices=FRAMEWORKS, nargs="+", default=list(FRAMEWORKS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rollouts", type=int, default=96)
    parser.add_argument("--words", type=int, nargs="+", default=[4, 64])
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--soak", type=int, metavar="ROLLOUTS")
    parser.add_argument("--policy", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--server", help=argparse.SUPPRESS)
    parser.add_argument("--floor", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.policy:
        serve_policy(options.policy)
    elif options.server:
        serve_rollouts(options.server)
    elif options.floor:
        framework, words, concurrency, count, url = options.floor
        cost = measure_floor(framework, int(words), int(concurrency), int(count), url)
        print(asyncio.run(cost))
    else:
        for framework in options.framework:
            with (
                tempfile.TemporaryDirectory() as root,
                child("--server", framework, root=root) as (server, ask),
            ):
                if options.soak:
                    with child("--policy", str(options.words[0])) as (policy, _):
                        soak(framework, options.soak, server, ask, policy)
                else:
                    compare(framework, options, server, ask)


if __name__ == "__main__":
    main()
