"""Event streams in pieces: nothing is lost, whatever the pieces, and what is taken out is all."""

import itertools
import json
from typing import Any

import pytest
from between import QUESTION, Start
from hypothesis import given
from hypothesis import strategies as st

from osmosis_ai.rollout.eval._gateway._blocks import Blocks, with_data
from osmosis_ai.rollout.testing import ScriptedPolicy, stream_reply

LINES = ("data: {}", "data:x", ": ping", "event: error", "id: 7", "", "", "data: \u2028", "junk")
ENDS = ("\n", "\r\n", "\r")


@given(
    st.lists(st.tuples(st.sampled_from(LINES), st.sampled_from(ENDS))),
    st.lists(st.integers(0, 200)),
)
def test_blocks_are_the_stream(lines: list[tuple[str, str]], cuts: list[int]) -> None:
    """Joined again they are what came, and each but the rest ends with an empty line."""
    stream = "".join(line + end for line, end in lines).encode()
    places = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    blocks = Blocks()
    got = [
        block
        for start, end in itertools.pairwise(places)
        for block in blocks.feed(stream[start:end])
    ]
    assert b"".join([*got, blocks.rest()]) == stream
    assert all(block.endswith((b"\n\n", b"\r\r", b"\n\r", b"\r\n\r\n", b"\r\n")) for block in got)


@pytest.mark.parametrize(
    ("block", "changed"),
    [
        (b"data: {}\n\n", b"data: 1\n\n"),
        (b"data:{}\r\n\r\n", b"data: 1\r\n\r\n"),
        (b": hi\nevent: x\ndata: {\ndata: }\nid: 7\n\n", b": hi\nevent: x\ndata: 1\nid: 7\n\n"),
        (b"data: {}", b"data: 1"),
    ],
)
def test_other_data_in_the_same_block(block: bytes, changed: bytes) -> None:
    """Comments, other fields and line ends stay."""
    assert with_data(block, b"1") == changed


def choice(text: str, finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"index": 0, "delta": {"content": text}, "finish_reason": finish, **more}


def logprob(token: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"token": token, "logprob": -0.5, **more}]}


PLAIN = [{"choices": [choice("a")]}, {"choices": [choice("b", "stop")]}]
ENGINES: dict[str, tuple[list[dict[str, Any]], list[int] | None]] = {
    "vllm": (
        [
            {
                "choices": [choice("a", token_ids=[7], logprobs=logprob("a"))],
                "prompt_token_ids": [1, 2],
            },
            {"choices": [choice("b", "stop", token_ids=[8], logprobs=logprob("b"))]},
            {"choices": [], "usage": {"completion_tokens": 2}},
        ],
        [1, 2],
    ),
    "sglang": (
        [
            {
                "choices": [
                    choice(
                        "a",
                        prompt_token_ids=[1, 2],
                        meta_info={
                            "completion_tokens": 1,
                            "output_token_logprobs": [[-0.5, 7, "a"]],
                        },
                    )
                ]
            },
            {
                "choices": [
                    choice(
                        "b",
                        "stop",
                        meta_info={
                            "completion_tokens": 2,
                            "output_token_logprobs": [[-0.5, 7, "a"], [-0.5, 8, "b"]],
                        },
                    )
                ],
                "usage": {"completion_tokens": 2},
            },
        ],
        [1, 2],
    ),
    "llama.cpp": (
        [
            {"choices": [choice("a", logprobs=logprob("a", id=7))]},
            {"choices": [choice("b", "stop", logprobs=logprob("b", id=8))]},
            {"choices": [], "usage": {"completion_tokens": 2}},
        ],
        None,
    ),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("size", [1, 7, 100_000])
async def test_token_ids_in_every_spelling(between: Start, engine: str, size: int) -> None:
    """They leave the stream and reach the report, in whatever pieces they come."""
    chunks, prompt = ENGINES[engine]
    stream = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks).encode()
    pieces = [stream[start : start + size] for start in range(0, len(stream), size)]
    with ScriptedPolicy(stream_reply(*pieces)) as upstream:
        async with between(upstream.url, token_ids=True) as rollout:
            got = await rollout.bytes_of()
            told = await rollout.call_back()
    lines = [line[6:] for line in got.decode().split("\n\n") if line.startswith("data: {")]
    assert [json.loads(line) for line in lines] == PLAIN
    assert got.endswith(b"data: [DONE]\n\n")
    [call] = told["llm_call_metrics"]
    assert call.get("prompt_token_ids") == prompt
    assert (call["completion_token_ids"], call["logprobs"]) == ([7, 8], [-0.5, -0.5])
    assert call["completion_tokens"] == 2


async def test_log_probabilities_that_are_no_numbers(between: Start) -> None:
    """What Python's servers write for NaN goes to a rollout that asked, and harms no report."""
    chunk = '{"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": "stop", '
    chunk += '"logprobs": {"content": [{"token": "a", "logprob": NaN}]}}], "usage": {}}'
    with ScriptedPolicy(stream_reply(f"data: {chunk}\n\n".encode())) as upstream:
        async with between(upstream.url) as rollout:
            got = await rollout.bytes_of(logprobs=True)
            report = await rollout.end([*QUESTION, {"role": "assistant", "content": "a"}])
    assert b"NaN" in got
    assert b"usage" not in got
    assert report["findings"] == []
