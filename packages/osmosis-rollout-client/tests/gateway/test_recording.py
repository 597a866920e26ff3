"""What the gateway records."""

import asyncio
import json
import resource
from collections.abc import Generator
from contextlib import contextmanager

import httpx
import pytest
from between import QUESTION, Start, job

from osmosis_ai.rollout.eval import RunError
from osmosis_ai.rollout.eval._recording import request_digest
from osmosis_ai.rollout.testing import (
    Cut,
    Gate,
    ScriptedPolicy,
    chunk,
    error_reply,
    reply,
    stream_reply,
)


@contextmanager
def files_up_to(size: int) -> Generator[None]:
    """Have this process write no file beyond a size, as if the disk were full then."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


async def test_a_line_for_each_call(between: Start) -> None:
    """What was asked is a digest of the rollout's own words, what was answered is what it got."""
    gate = Gate()
    broken, silent = stream_reply(chunk(content="\u00e4"), gate), stream_reply(gate)
    usage = {"completion_tokens": 1}
    with ScriptedPolicy(
        reply("4", usage=usage), error_reply(404), reply("5"), broken, silent
    ) as upstream:
        async with between(upstream.url, record=True) as rollout:
            got = await rollout.bytes_of()
            await rollout.bytes_of(seed=1)
            document = await rollout.ask(seed=2)
            async with rollout.stream(seed=3) as response:
                part = await anext(response.aiter_bytes())
            await asyncio.to_thread(upstream.requests[3].wait)
            waiting = asyncio.create_task(rollout.ask(seed=4))
            await asyncio.to_thread(gate.wait, 2)
            waiting.cancel()
            await asyncio.to_thread(upstream.requests[4].wait)
    lines = [
        json.loads(line) for line in (rollout.output / "recording.jsonl").read_bytes().splitlines()
    ]
    assert [(line["row"], line["attempt"], line["rollout_id"]) for line in lines] == [
        (0, 1, "r-1")
    ] * 5
    assert [line["status"] for line in lines] == [200, 404, 200, 200, 0]
    assert [line["left_after_sec"] is not None for line in lines] == [False] * 3 + [True] * 2
    assert not any(line["cut"] for line in lines)
    assert lines[0]["body"].encode() == got
    assert b"usage" not in got
    assert lines[2]["body"] == document.text
    assert lines[3]["body"].encode() == part
    assert lines[4]["body"] == ""
    asked = {"model": "osmosis-rollout", "messages": QUESTION, "stream": True}
    assert lines[0]["request"] == request_digest(asked)
    assert lines[1]["request"] == request_digest(asked | {"seed": 1})


async def test_a_stream_that_the_upstream_cut(between: Start) -> None:
    """It is told from one that the rollout left."""
    with ScriptedPolicy(stream_reply(chunk(content="a"), Cut())) as upstream:
        async with between(upstream.url, record=True) as rollout:
            with pytest.raises(httpx.RemoteProtocolError):
                await rollout.bytes_of()
    line = json.loads((rollout.output / "recording.jsonl").read_bytes())
    assert (line["cut"], line["left_after_sec"]) == (True, None)


async def test_half_a_line_of_a_lost_process_spoils_nothing(between: Start) -> None:
    """A resumed run goes on behind the last whole line."""
    with ScriptedPolicy("4") as upstream:
        async with between(upstream.url, record=True) as rollout:
            recording = rollout.output / "recording.jsonl"
            recording.write_bytes(b'{"whole": 1}\n{"row": 0, "atte')
            await rollout.bytes_of()
    first, second = recording.read_bytes().splitlines()
    assert json.loads(first) == {"whole": 1}
    assert json.loads(second)["rollout_id"] == "r-1"


async def test_a_disk_that_is_full_in_the_middle(between: Start) -> None:
    """The run ends in good order, and says what is wrong; nothing follows half a line."""
    with ScriptedPolicy("4", "5") as upstream:
        async with between(upstream.url, record=True) as rollout:
            with files_up_to(100):
                await rollout.bytes_of()
            await rollout.bytes_of()
            with pytest.raises(RunError, match="cannot be written: File too large"):
                rollout.gateway.report(job(), None)
    assert (rollout.output / "recording.jsonl").read_bytes().count(b'"row"') == 1


async def test_nothing_is_recorded_unasked(between: Start) -> None:
    """Answers can be large."""
    with ScriptedPolicy("4") as upstream:
        async with between(upstream.url) as rollout:
            await rollout.bytes_of()
    assert list(rollout.output.iterdir()) == []


async def test_a_recording_that_cannot_be_written(between: Start) -> None:
    """No rollout counts whose answers are not kept, and the cause is told."""
    with ScriptedPolicy("4") as upstream:
        async with between(upstream.url, record=True) as rollout:
            (rollout.output / "recording.jsonl").mkdir()
            assert (await rollout.bytes_of()).endswith(b"[DONE]\n\n")
            with pytest.raises(RunError, match=r"recording\.jsonl: cannot be written: Is a dir"):
                rollout.gateway.report(job(), None)
