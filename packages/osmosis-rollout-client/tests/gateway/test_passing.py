"""Calls through the gateway: what goes up, what comes back, and when."""

import asyncio
import json
from typing import Any

import httpx
import pytest
from between import QUESTION, Start

from osmosis_ai.rollout.policy import PolicyError
from osmosis_ai.rollout.testing import (
    Comment,
    Cut,
    Gate,
    ScriptedPolicy,
    chunk,
    error_reply,
    raw_reply,
    reply,
    stream_reply,
)

USAGE = {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}


def events(*chunks: Any, end: str = "\n\n") -> bytes:
    """Return the bytes of a stream as servers write them."""
    return "".join(f"data: {json.dumps(item)}{end}" for item in chunks).encode()


def delta(index: int = 0, finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": index, "delta": fields, "finish_reason": finish}]}


def call_piece(index: int, **fields: Any) -> dict[str, Any]:
    return {"tool_calls": [{"index": index, **fields}]}


DONE = b"data: [DONE]\n\n"
WEATHER = {"name": "weather", "arguments": '{"city":"Oslo"}'}
FORMS: dict[str, tuple[bytes, str]] = {
    "openai: role first, obfuscation, usage null and then without choices": (
        events(
            delta(role="assistant", content="", refusal=None) | {"usage": None, "obfuscation": "x"},
            delta(content="Hi \u2028there") | {"usage": None},
            delta(finish="stop") | {"usage": None},
            {"choices": [], "usage": USAGE},
        )
        + DONE,
        "Hi \u2028there",
    ),
    "vllm: reasoning_content, continuous usage, comments": (
        b": ping\n\n"
        + events(
            delta(role="assistant", content="") | {"usage": USAGE},
            delta(reasoning_content="so") | {"usage": USAGE},
            delta(content="4") | {"usage": USAGE},
            delta(finish="stop", content="") | {"stop_reason": None},
            {"choices": [], "usage": USAGE},
        )
        + DONE,
        "4",
    ),
    "sglang: reasoning, fragments of tool calls": (
        events(
            delta(role="assistant", content=None, reasoning="hm"),
            delta(**call_piece(0, id="c1", type="function", function={"name": "weather"})),
            delta(**call_piece(0, function={"arguments": '{"city":'})),
            delta(**call_piece(0, function={"arguments": '"Oslo"}'})),
            delta(finish="tool_calls"),
            {"choices": [], "usage": USAGE},
        )
        + DONE,
        "",
    ),
    "llama.cpp: CR LF, timings, usage on the last chunk": (
        events(
            delta(role="assistant", content=None),
            delta(content="4"),
            delta(finish="stop") | {"usage": USAGE, "timings": {"predicted_n": 2}},
            end="\r\n\r\n",
        )
        + b"data: [DONE]\r\n\r\n",
        "4",
    ),
    "ollama: whole tool calls, usage on the finish chunk, no [DONE]": (
        events(
            delta(role="assistant", content="", **call_piece(0, id="c1", function=WEATHER)),
            delta(finish="tool_calls", role="assistant", content="") | {"usage": USAGE},
        ),
        "",
    ),
    "one chunk holds everything, and no empty line at the end": (
        events(delta(role="assistant", content="4", finish="stop") | {"usage": USAGE})[:-2],
        "4",
    ),
}


@pytest.mark.parametrize("form", FORMS)
async def test_streams_pass_byte_by_byte(between: Start, form: str) -> None:
    """What the rollout asked for itself comes back untouched, in every engine's form."""
    body, text = FORMS[form]
    with ScriptedPolicy(stream_reply(body, done=False), stream_reply(body, done=False)) as upstream:
        async with between(upstream.url) as rollout:
            assert await rollout.bytes_of(stream_options={"include_usage": True}) == body
            answer = await rollout.policy.complete(QUESTION)
            report = await rollout.end()
    assert answer.text == text
    assert answer.usage == USAGE
    assert [call["function"] for call in answer.tool_calls] == ([] if text else [WEATHER])
    assert (report["calls"], report["prompt_tokens"], report["completion_tokens"]) == (2, 18, 4)
    assert report["findings"] == []


@pytest.mark.parametrize("form", FORMS)
async def test_usage_that_nobody_asked_for_is_taken_out(between: Start, form: str) -> None:
    """It is asked for all the same, and counted; every other byte stays."""
    body, _ = FORMS[form]
    with ScriptedPolicy(stream_reply(body, done=False)) as upstream:
        async with between(upstream.url) as rollout:
            got = await rollout.bytes_of()
            report = await rollout.end()
    assert upstream.requests[0].body["stream_options"] == {"include_usage": True}
    assert b'"usage"' not in got
    kept = [line for line in body.splitlines() if b'"usage"' not in line and line]
    assert [line for line in got.splitlines() if line in kept] == kept
    chunks = [json.loads(line[6:]) for line in got.splitlines() if line.startswith(b"data: {")]
    sent = [json.loads(line[6:]) for line in body.splitlines() if line.startswith(b"data: {")]
    stripped = [{k: v for k, v in item.items() if k != "usage"} for item in sent if item["choices"]]
    assert chunks == stripped
    assert report["completion_tokens"] == 2


async def test_token_ids_are_asked_for_and_taken_out(between: Start) -> None:
    """The rollout sees nothing of them; the trajectory does."""
    logprobs = [{"token": "4", "logprob": -0.25}]
    full = reply("4", usage=USAGE, prompt_token_ids=[1, 2], token_ids=[7], logprobs=logprobs)
    with ScriptedPolicy(full, full) as upstream:
        async with between(upstream.url, token_ids=True) as rollout:
            answer = await rollout.policy.complete(QUESTION)
            whole = (await rollout.ask()).json()
            told = await rollout.call_back()
    asked = upstream.requests[0].body
    assert asked["return_token_ids"] is asked["return_meta_info"] is asked["logprobs"] is True
    assert (answer.text, answer.token_ids, answer.logprobs) == ("4", None, None)
    assert answer.prompt_token_ids is None
    assert whole["choices"] == [
        {"index": 0, "finish_reason": "stop", "message": whole["choices"][0]["message"]}
    ]
    assert "prompt_token_ids" not in whole
    assert whole["usage"] == USAGE
    assert told["final_metrics"] == {"total_prompt_tokens": 18, "total_completion_tokens": 4}
    for call in told["llm_call_metrics"]:
        assert call["prompt_token_ids"] == [1, 2]
        assert call["completion_token_ids"] == [7]
        assert call["logprobs"] == [-0.25]
        assert call["model_name"] == "real"


async def test_what_the_rollout_asked_for_itself_stays(between: Start) -> None:
    """Log probabilities and ids are its own then."""
    entries = [{"token": "4", "logprob": -0.25}]
    full = reply("4", usage=USAGE, prompt_token_ids=[1, 2], token_ids=[7], logprobs=entries)
    with ScriptedPolicy(full) as upstream:
        async with between(upstream.url, token_ids=True) as rollout:
            answer = await rollout.policy.complete(QUESTION, logprobs=True, return_token_ids=True)
    assert (answer.prompt_token_ids, answer.token_ids, answer.logprobs) == ([1, 2], [7], [-0.25])


async def test_every_parameter_passes(between: Start) -> None:
    """Only the model is replaced; odd values come out as they went in."""
    body: dict[str, Any] = {
        "messages": [{"role": "user", "content": "\u00e4\u2028\U0001f600", "extra": None}],
        "temperature": 0.7,
        "seed": 2**63,
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
        "chat_template_kwargs": {"enable_thinking": False},
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "unknown": [1.0, None, {"deep": [[]]}],
    }
    with ScriptedPolicy("4", "4") as upstream:
        async with between(upstream.url) as rollout:
            await rollout.bytes_of(**body)
            half = b'{"stream": true, "messages": [{"role": "user", "content": "\\ud800"}]}'
            await rollout.post(half)
    assert upstream.requests[0].body == body | {"model": "real", "stream": True}
    assert upstream.requests[1].messages[0]["content"] == "\ud800"


async def test_chunks_go_on_as_they_come(between: Start) -> None:
    """The first one is there while the upstream still holds back the second."""
    gate = Gate()
    held = stream_reply(
        chunk(content="a"), Comment(), gate, chunk(content="b", finish_reason="stop")
    )
    with ScriptedPolicy(held, held) as upstream:
        async with between(upstream.url) as rollout:
            for asked in ({"stream_options": {"include_usage": True}}, {}):
                async with rollout.stream(**asked) as response:
                    pieces = response.aiter_bytes()
                    got = b""
                    while b": ping\n\n" not in got:
                        got += await anext(pieces)
                    assert b'"a"' in got
                    assert b'"b"' not in got
                    if not asked:
                        gate.open()
                        assert b'"b"' in b"".join([piece async for piece in pieces])


async def test_a_rollout_that_leaves_ends_its_call_upstream(between: Start) -> None:
    """The engine stops generating; nothing is left behind."""
    gate = Gate()
    held = stream_reply(chunk(content="a"), gate)
    with ScriptedPolicy(held, stream_reply(gate)) as upstream:
        async with between(upstream.url) as rollout:
            async with rollout.stream() as response:
                await anext(response.aiter_bytes())
            assert await asyncio.to_thread(upstream.requests[0].wait) == "disconnected"
            waiting = asyncio.create_task(rollout.ask())
            await asyncio.to_thread(gate.wait, 2)
            waiting.cancel()
            [_, second] = upstream.requests
            assert await asyncio.to_thread(second.wait) == "disconnected"
            assert (await rollout.findings()).keys() == {"failed"}


async def test_requests_without_a_stream(between: Start) -> None:
    """They get one document."""
    with ScriptedPolicy(reply("4", usage=USAGE)) as upstream:
        async with between(upstream.url) as rollout:
            response = await rollout.ask(temperature=0)
    assert response.headers["content-type"] == "application/json"
    assert response.json()["choices"][0]["message"] == {"role": "assistant", "content": "4"}
    assert upstream.requests[0].body == {"model": "real", "messages": QUESTION, "temperature": 0}


async def test_several_answers_to_one_call(between: Start) -> None:
    """Each of them counts as an answer of the policy."""
    body = events(
        delta(0, role="assistant", content="4"),
        delta(1, role="assistant", content="5"),
        delta(1, finish="stop"),
        delta(0, finish="stop"),
    )
    with ScriptedPolicy(stream_reply(body)) as upstream:
        async with between(upstream.url) as rollout:
            await rollout.bytes_of(n=2)
            found = await rollout.findings([*QUESTION, {"role": "assistant", "content": "5"}])
    assert upstream.requests[0].body["n"] == 2
    assert found == {}


@pytest.mark.parametrize("status", [400, 401, 404, 422, 429, 500, 503])
async def test_errors_of_the_upstream_stay_what_they_are(between: Start, status: int) -> None:
    """Status, body and the usual headers; only a key that is repeated is hidden."""
    error = {"error": {"message": f"bad key sk-secret ({status})", "type": "t", "code": "c"}}
    refusal = error_reply(status, error, headers={"X-Request-Id": "7", "Retry-After": "900"})
    with ScriptedPolicy(refusal) as upstream:
        async with between(upstream.url, upstream_key="sk-secret") as rollout:
            async with rollout.stream(stream_options={"include_usage": True}) as response:
                body = await response.aread()
            found = await rollout.findings()
    assert response.status_code == status
    assert json.loads(body)["error"] == error["error"] | {"message": f"bad key [secret] ({status})"}
    assert (response.headers["x-request-id"], response.headers["retry-after"]) == ("7", "900")
    words = f"call 1 failed: the upstream answered {status}: bad key [secret] ({status})"
    assert found == {"failed": words}


async def test_an_error_inside_the_stream(between: Start) -> None:
    """It reaches the rollout, which fails as it would have without the gateway."""
    broken = stream_reply(chunk(content="a"), {"error": {"message": "out of memory", "code": 500}})
    with ScriptedPolicy(broken) as upstream:
        async with between(upstream.url) as rollout:
            with pytest.raises(PolicyError, match="out of memory"):
                await rollout.policy.complete(QUESTION)
            assert "out of memory" in (await rollout.findings())["failed"]


@pytest.mark.parametrize("reset", [False, True])
async def test_a_stream_that_is_cut_stays_cut(between: Start, reset: bool) -> None:
    """An answer without an end gets none from the gateway."""
    cut = stream_reply(chunk(content="a"), Cut(reset=reset))
    with ScriptedPolicy(cut, cut) as upstream:
        async with between(upstream.url) as rollout:
            with pytest.raises(httpx.RemoteProtocolError):
                await rollout.bytes_of()
            with pytest.raises(PolicyError, match="broke off"):
                await rollout.policy.complete(QUESTION)
            assert (await rollout.findings()).keys() == {"failed"}


async def test_a_stream_whose_connection_goes_on_after_its_end(between: Start) -> None:
    """`[DONE]` is enough."""
    gate = Gate()
    with ScriptedPolicy(
        stream_reply(events(delta(content="4", finish="stop")), DONE, gate, done=False)
    ) as upstream:
        async with between(upstream.url) as rollout:
            assert (await rollout.policy.complete(QUESTION)).text == "4"
            gate.open()


async def test_the_upstream_is_no_http_server(between: Start) -> None:
    """The rollout hears of it as of any endpoint that fails, with the place and without keys."""
    nonsense = raw_reply(b"SSH-2.0-OpenSSH\r\n")
    with ScriptedPolicy(nonsense, nonsense, nonsense) as upstream:
        async with between(upstream.url, upstream_key="sk-secret") as rollout:
            response = await rollout.ask()
        assert upstream.url in response.json()["error"]["message"]
    assert response.status_code == 502
    assert response.json()["error"]["type"] == "upstream_error"
    assert "sk-secret" not in response.text
