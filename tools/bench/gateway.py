"""Measure what the policy gateway adds to a streamed call, beside the same call without it.

A call streams 50 chunks, one every 20 ms, as an engine with 50 tokens a second does. Calls go to
the upstream itself ("alone"), through the gateway as they are ("passed on"), and through a gateway
that asks for token ids and takes them out of every chunk again ("stripped"). Upstream, gateways and
clients are processes of their own. The delay is the client's, from the last byte of its request to
the first of the answer; CPU is that of all processes but the client's. They take turns, and the
table shows medians: compare the rows of one run, not runs.

Then whole evaluations, of rollouts that call a policy once that answers at once in one chunk:
rows per second between the first result and the last, and the peak memory of the evaluation, which
is where the gateway lives.

    nox -s bench -- gateway [--rounds N] [--streams 1 64] [--rows N]
"""

import argparse
import asyncio
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

CHUNKS: Final = 50
CHUNK_GAP_SEC: Final = 0.02
CALLS: Final = {1: 10, 64: 256}
MODES: Final = ("alone", "passed on", "stripped")
# As long as a conversation of a few turns.
MESSAGES: Final = [{"role": "user", "content": "x" * 4000}]


# The servers' processes.


def event(number: int) -> bytes:
    """Return a chunk as vLLM sends it when it is asked for token ids."""
    entry = {"token": "word", "logprob": -0.1234, "bytes": [119], "top_logprobs": []}
    choice = {
        "index": 0,
        "delta": {"content": "word "},
        "logprobs": {"content": [entry]},
        "finish_reason": "stop" if number == CHUNKS - 1 else None,
        "token_ids": [number],
    }
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "real"}
    return f"data: {json.dumps(chunk | {'choices': [choice]})}\n\n".encode()


EVENTS: Final = [event(number) for number in range(CHUNKS)]
INSTANT: Final = EVENTS[-1:]


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer every request on a connection with a stream."""
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            if b"content-length:" not in head.lower():  # who it is, it does not tell
                writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
                continue
            length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
            writer.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                b"Transfer-Encoding: chunked\r\n\r\n"
            )
            for number, data in enumerate(INSTANT if b"/instant/" in head else EVENTS):
                if number:
                    await asyncio.sleep(CHUNK_GAP_SEC)
                writer.write(b"%x\r\n%s\r\n" % (len(data), data))
            writer.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def serve_upstream() -> None:
    """Serve until standard input closes."""
    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=2048)
    print(json.dumps([f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", ""]), flush=True)
    await asyncio.to_thread(tell_usage)


async def serve_gateway(base_url: str, *, token_ids: bool) -> None:
    """Serve one rollout that never ends, until standard input closes."""
    from osmosis_ai.rollout.eval import DatasetRow, EvalOptions
    from osmosis_ai.rollout.eval._outcomes import Attempt, Job
    from osmosis_ai.rollout.eval._policies import policy_of, started

    with tempfile.TemporaryDirectory() as folder:
        options = EvalOptions(
            dataset=Path(folder, "none"),
            output=Path(folder, "run"),
            url="http://127.0.0.1:9",
            base_url=[base_url],
            model="real",
            token_ids=token_ids,
        )
        async with started(policy_of(options)) as gateway:
            job = Job(DatasetRow(0, None, MESSAGES, None, None), Attempt(1, None), "bench")
            endpoint = gateway.endpoint(job)
            print(json.dumps([endpoint.url, endpoint.key]), flush=True)
            done = asyncio.Event()
            loop = asyncio.get_running_loop()

            def obey() -> None:
                tell_usage()
                loop.call_soon_threadsafe(done.set)

            threading.Thread(target=obey, daemon=True).start()
            await done.wait()


def tell_usage() -> None:
    """For every line of standard input, print the CPU seconds so far."""
    for _ in sys.stdin:
        used = resource.getrusage(resource.RUSAGE_SELF)
        print(used.ru_utime + used.ru_stime, flush=True)


class Server:
    """A server's process."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._in, self._out = process.stdin, process.stdout
        self.url, self.key = json.loads(self._out.readline())

    def cpu(self) -> float:
        """Return the CPU seconds that it has used."""
        print(file=self._in, flush=True)
        return float(self._out.readline())


@contextmanager
def serving(*arguments: str) -> Generator[Server]:
    """Start this file as a server."""
    line = [sys.executable, __file__, *arguments]
    with subprocess.Popen(
        line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield Server(process)
        assert process.stdin is not None
        process.stdin.close()


# The client's process.


async def drive(url: str, key: str, streams: int) -> list[float]:
    """Keep so many streams open, and return the delay of every call in seconds."""
    import aiohttp

    delays: list[float] = []
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    options = {"include_usage": True}
    body = {"model": "x", "messages": MESSAGES, "stream": True, "stream_options": options}
    data = json.dumps(body).encode()

    async def call(session: aiohttp.ClientSession) -> None:
        began = time.perf_counter()
        async with session.post(f"{url}/chat/completions", data=data, headers=headers) as response:
            got = await response.content.readany()
            delay = time.perf_counter() - began
            got += await response.content.read()
        if response.status != 200 or got.count(b'"word "') != CHUNKS:
            sys.exit(f"a call went wrong: {response.status} {got[:200]!r}")
        delays.append(delay)

    async def caller(session: aiohttp.ClientSession, waiting: Iterator[int], place: int) -> None:
        # Calls of agents do not come all at once.
        await asyncio.sleep(place * CHUNKS * CHUNK_GAP_SEC / streams)
        for _ in waiting:
            await call(session)

    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        await call(session)
        delays.clear()
        waiting = iter(range(CALLS.get(streams, 4 * streams)))
        callers = (caller(session, waiting, place) for place in range(streams))
        await asyncio.gather(*callers)
    return delays


# An evaluation's process.

PROJECT: Final = """
from osmosis_ai.rollout import AgentWorkflow, Grader, LocalBackend
from osmosis_ai.rollout.policy import PolicyClient
from osmosis_ai.rollout.server import create_rollout_server


class Asks(AgentWorkflow):
    async def run(self, ctx):
        return [*ctx.prompt, (await PolicyClient().complete(ctx.prompt)).message]


class Passes(Grader):
    async def grade(self, ctx):
        ctx.set_reward(1.0)


app = create_rollout_server(backend=LocalBackend(workflow=Asks, grader=Passes))
"""


async def evaluate_rows(url: str, rows: int, *, through_gateway: bool) -> list[float]:
    """Evaluate so many rows; return how many were done per second, and the peak of resident MB."""
    from osmosis_ai.rollout.eval import EvalOptions, Listener, evaluate

    ends: list[float] = []

    class Watch(Listener):
        def on_outcome(self, outcome: object) -> None:
            ends.append(time.perf_counter())

    policy: dict[str, Any] = (
        {"base_url": [url], "model": "real"} if through_gateway else {"chat_url": url}
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "main.py").write_text(PROJECT, encoding="utf-8")
        row = json.dumps({"user_prompt": MESSAGES[0]["content"], "ground_truth": "word"})
        (folder / "data.jsonl").write_text(f"{row}\n" * rows, encoding="utf-8")
        options = EvalOptions(
            dataset=folder / "data.jsonl",
            output=folder / "run",
            entrypoint=f"{folder / 'main.py'}:app",
            max_in_flight=16,
            **policy,
        )
        report = await evaluate(options, Watch())
    if report.tally.everything.passed != rows:
        sys.exit(f"rollouts went wrong: {report.as_json()}")
    # macOS counts in bytes, Linux in KiB.
    unit = 1e6 if sys.platform == "darwin" else 1e6 / 2**10
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
    return [(rows - 1) / (ends[-1] - ends[0]), peak]


# What is compared.


def measure(server: Server, behind: list[Server], streams: int) -> tuple[float, float]:
    """Return the median delay of a call and the CPU of the servers for it, in milliseconds."""
    line = [sys.executable, __file__, f"--drive={server.url}", f"--key={server.key}"]
    before = sum(one.cpu() for one in behind)
    done = subprocess.run(
        [*line, f"--streams={streams}"], stdout=subprocess.PIPE, text=True, check=True
    )
    delays = json.loads(done.stdout)
    cpu = sum(one.cpu() for one in behind) - before
    return 1e3 * statistics.median(delays), 1e3 * cpu / len(delays)


def compare(options: argparse.Namespace) -> None:
    """Print a row per number of streams and way."""
    print(f"{'streams':>7}  {'way':12}{'first byte ms':>14}{'servers CPU ms/call':>21}")
    with ExitStack() as stack:
        upstream = stack.enter_context(serving("--serve=upstream"))
        arguments = ("--serve=gateway", f"--drive={upstream.url}")
        plain = stack.enter_context(serving(*arguments))
        stripping = stack.enter_context(serving(*arguments, "--token-ids"))
        servers = dict(zip(MODES, (upstream, plain, stripping), strict=True))
        for streams in options.streams:
            turns = [
                {
                    mode: measure(server, list({upstream, server}), streams)
                    for mode, server in servers.items()
                }
                for _ in range(options.rounds)
            ]
            for mode in MODES:
                delay, cpu = (statistics.median(turn[mode][i] for turn in turns) for i in (0, 1))
                print(f"{streams:>7}  {mode:12}{delay:>14.2f}{cpu:>21.2f}", flush=True)
            for mode in MODES[1:]:
                print(f"{'':9}{mode}: {differences(turns, mode)}", flush=True)


def compare_evaluations(options: argparse.Namespace) -> None:
    """Print a row for an evaluation without the gateway, and one with it."""
    print(f"\n{'rows':>7}  {'way':12}{'rows/s':>14}{'peak MB':>21}")
    with serving("--serve=upstream") as upstream:
        line = [sys.executable, __file__, f"--drive={upstream.url.replace('/v1', '/instant/v1')}"]
        turns = [
            {
                mode: json.loads(
                    subprocess.run(
                        [*line, f"--evaluate={mode}", f"--rows={options.rows}"],
                        stdout=subprocess.PIPE,
                        text=True,
                        check=True,
                    ).stdout
                )
                for mode in MODES[:2]
            }
            for _ in range(options.rounds)
        ]
    for mode in MODES[:2]:
        rate, peak = (statistics.median(turn[mode][i] for turn in turns) for i in (0, 1))
        print(f"{options.rows:>7}  {mode:12}{rate:>14.0f}{peak:>21.0f}", flush=True)
    times = statistics.median(turn["alone"][0] / turn["passed on"][0] for turn in turns)
    print(f"{'':9}passed on: {times:.2f} x the time")


def differences(turns: list[dict[str, tuple[float, float]]], mode: str) -> str:
    """Return how a way compares to the upstream alone, turn by turn."""
    pairs = [(turn[mode], turn["alone"]) for turn in turns]
    more = [statistics.median(ours[i] - least[i] for ours, least in pairs) for i in (0, 1)]
    times = [statistics.median(ours[i] / least[i] for ours, least in pairs) for i in (0, 1)]
    return (
        f"{more[0]:+.2f} ms to the first byte ({times[0]:.2f} x), "
        f"{more[1]:+.2f} ms of CPU ({times[1]:.2f} x)"
    )


def main() -> None:
    """Run the comparison, or the part of it that a child process is asked for."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 64])
    parser.add_argument("--rows", type=int, default=1000, help="rows of an evaluation, or 0")
    parser.add_argument("--evaluate", choices=MODES[:2], help=argparse.SUPPRESS)
    parser.add_argument("--serve", choices=["upstream", "gateway"], help=argparse.SUPPRESS)
    parser.add_argument("--drive", help=argparse.SUPPRESS)
    parser.add_argument("--key", default="", help=argparse.SUPPRESS)
    parser.add_argument("--token-ids", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    parts: dict[str | None, Callable[[], Any]] = {
        "upstream": serve_upstream,
        "gateway": lambda: serve_gateway(options.drive, token_ids=options.token_ids),
    }
    if options.serve:
        asyncio.run(parts[options.serve]())
    elif options.evaluate:
        through = options.evaluate != "alone"
        work = evaluate_rows(options.drive, options.rows, through_gateway=through)
        print(json.dumps(asyncio.run(work)))
    elif options.drive:
        print(json.dumps(asyncio.run(drive(options.drive, options.key, options.streams[0]))))
    else:
        compare(options)
        if options.rows:
            compare_evaluations(options)


if __name__ == "__main__":
    main()
