"""Answers that are none, or not quite: what the rollout gets of them, and what is found."""

import json
from typing import Any

import pytest
from between import QUESTION, Start

from osmosis_ai.rollout.policy import PolicyError
from osmosis_ai.rollout.testing import (
    Gate,
    Pause,
    Reply,
    ScriptedPolicy,
    chunk,
    error_reply,
    raw_reply,
    stream_reply,
)

KEY = "sk-secret-of-the-upstream"
WHOLE = (chunk(content="4", finish_reason="stop"), {"choices": [], "usage": {"total_tokens": 3}})


def page(status: int, body: bytes, **headers: str) -> Reply:
    return Reply(steps=(body,) if body else (), status=status, headers=headers)


@pytest.mark.parametrize(
    "odd",
    [
        page(200, b"<html>no model is loaded</html>", **{"Content-Type": "text/html"}),
        page(200, b""),
        page(200, b": ping\n\ndata: [DONE]\n\n", **{"Content-Type": "text/event-stream"}),
        raw_reply(b"HTTP/1.1 204 No Content\r\n\r\n"),
    ],
    ids=["page", "empty", "comments", "204"],
)
async def test_an_answer_that_holds_nothing_is_none(between: Start, odd: Reply) -> None:
    """It passes as it came, fails the rollout's call, and is found."""
    with ScriptedPolicy(odd, odd) as upstream:
        async with between(upstream.url) as rollout:
            await rollout.bytes_of()
            with pytest.raises(PolicyError):
                await rollout.policy.complete(QUESTION)
            found = await rollout.findings()
    assert found["failed"].startswith("calls 1, 2 failed")


@pytest.mark.parametrize("token_ids", [False, True])
async def test_what_cannot_be_put_together_is_stripped_too(between: Start, token_ids: bool) -> None:
    """A rollout with a client of its own may use what ours cannot, and gets what it asked for."""
    old: dict[str, Any] = {"function_call": {"name": "f", "arguments": "{}"}}
    ids = {"prompt_token_ids": [1]}
    with ScriptedPolicy(stream_reply(chunk(**old), WHOLE[0] | ids, WHOLE[1])) as upstream:
        async with between(upstream.url, token_ids=token_ids) as rollout:
            got = (await rollout.bytes_of()).decode()
            found = await rollout.findings()
    assert "function_call" in got
    assert '"stop"' in got
    assert "usage" not in got
    assert ("prompt_token_ids" in got) is not token_ids
    assert "function_call" in found["failed"]


@pytest.mark.parametrize("asked", [{}, {"stream_options": {"include_usage": True}}])
@pytest.mark.parametrize(
    "odd",
    [
        stream_reply({"error": {"message": f"Incorrect API key provided: {KEY}"}}),
        stream_reply(f": {KEY}\n\nevent: error\ndata: no such key, {KEY}\n\n".encode()),
        page(200, json.dumps({"error": {"message": KEY}}).encode()),
        page(200, f"<html>{KEY}</html>".encode(), **{"Content-Type": "text/html"}),
        error_reply(401, "bad", headers={"WWW-Authenticate": f'Bearer realm="{KEY}"'}),
    ],
    ids=["event", "text", "document", "page", "header"],
)
async def test_the_upstreams_key_goes_to_no_rollout(
    between: Start, odd: Reply, asked: dict[str, Any]
) -> None:
    """Whatever repeats it, in whatever place and with whatever status; nor is it recorded."""
    with ScriptedPolicy(odd) as upstream:
        async with between(upstream.url, upstream_key=KEY, record=True) as rollout:
            async with rollout.stream(**asked) as response:
                body = await response.aread()
            found = await rollout.findings()
    recorded = (rollout.output / "recording.jsonl").read_text()
    assert KEY not in f"{body!r} {response.headers} {found} {recorded}"
    assert "[secret]" in f"{body!r} {response.headers}"


async def test_a_key_that_is_an_ordinary_word_changes_no_answer(between: Start) -> None:
    """Local servers are given keys such as `ollama`, and models write such words."""
    with ScriptedPolicy("I run in ollama") as upstream:
        async with between(upstream.url, upstream_key="ollama") as rollout:
            assert (await rollout.policy.complete(QUESTION)).text == "I run in ollama"


async def test_headers_that_cannot_be_sent_are_left_out(between: Start) -> None:
    """Some servers put control characters into them; the answer is no worse for it."""
    head = b"HTTP/1.1 200 OK\r\nX-Odd: a\x01b\r\nX-Id: a\tb\r\n\r\n"
    body = f"data: {json.dumps(WHOLE[0])}\n\n".encode()
    with ScriptedPolicy(raw_reply(head, body)) as upstream:
        async with between(upstream.url) as rollout, rollout.stream() as response:
            assert await response.aread() == body
    assert response.headers["x-id"] == "a\tb"
    assert "x-odd" not in response.headers


@pytest.mark.parametrize("part", [b"", b'{"error": '])
async def test_a_refusal_whose_body_does_not_come(between: Start, part: bytes) -> None:
    """Its status is enough."""
    gate = Gate()
    head = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 100\r\n\r\n"
    refusal = raw_reply(head, part, gate)
    with ScriptedPolicy(refusal, refusal) as upstream:
        async with between(upstream.url) as rollout:
            async with rollout.stream() as response:
                assert await response.aread() == part
            gate.open()
    assert response.status_code == 400


async def test_pings_after_the_end_do_not_go_on_for_ever(between: Start) -> None:
    """What has said that it is over is over soon."""

    def pings(request: Any) -> Reply:
        return stream_reply(*WHOLE, b"data: [DONE]\n\n", *[b": ping\n\n", Pause(0.1)] * 600)

    with ScriptedPolicy(respond=pings) as upstream:
        async with between(upstream.url) as rollout:
            got = await rollout.bytes_of()
    assert got.count(b"ping") < 300


@pytest.mark.parametrize(
    ("odd", "found"),
    [({"model": {"a": 1}}, []), ({"model": ["a"]}, []), ({"finish_reason": {"a": 1}}, ["failed"])],
)
async def test_a_field_of_another_type(
    between: Start, odd: dict[str, Any], found: list[str]
) -> None:
    """It passes as it came; neither the gateway nor its report breaks over it."""
    choice = {"index": 0, "finish_reason": "stop", "message": {"content": "4"}} | odd
    body = json.dumps({"choices": [choice]} | odd).encode()
    with ScriptedPolicy(page(200, body, **{"Content-Type": "application/json"})) as upstream:
        async with between(upstream.url) as rollout:
            assert (await rollout.ask()).content == body
            report = await rollout.end()
    assert report["models"] == []
    assert [finding["kind"] for finding in report["findings"]] == found


@pytest.mark.parametrize("count", [True, -5, 10**400, "9", [9], None])
async def test_counts_that_are_none(between: Start, count: object) -> None:
    """They are as good as not told."""
    whole = {"choices": [{"index": 0, "finish_reason": "stop", "message": {"content": "4"}}]}
    usage = {"prompt_tokens": 3, "completion_tokens": count}
    body = json.dumps(whole | {"usage": usage}).encode()
    with ScriptedPolicy(page(200, body, **{"Content-Type": "application/json"})) as upstream:
        async with between(upstream.url) as rollout:
            await rollout.ask()
            report = await rollout.end()
    assert (report["prompt_tokens"], report["completion_tokens"]) == (3, None)


async def test_models_that_cannot_be_read(between: Start) -> None:
    """The upstream is asked for token ids in every spelling then."""
    deep = page(200, b"[" * 100_000, **{"Content-Type": "application/json"})
    with ScriptedPolicy(respond=lambda request: deep) as upstream:
        async with between(upstream.url, token_ids=True) as rollout:
            await rollout.ask()
    assert upstream.requests[-1].body["return_token_ids"] is True
