"""Requests that nobody should send."""

import asyncio
import json

import httpx
import pytest
from between import Start, job

from osmosis_ai.rollout.testing import ScriptedPolicy


@pytest.mark.parametrize("header", [None, "Bearer wrong", "Bearer", "", "Basic eDp5", "B\u00e9"])
async def test_a_wrong_bearer(between: Start, header: str | None) -> None:
    """401 in OpenAI's shape, whatever the path, and no upstream hears of it."""
    with ScriptedPolicy() as upstream:
        async with between(upstream.url) as rollout, httpx.AsyncClient(trust_env=False) as http:
            headers: dict[bytes, bytes] = (
                {} if header is None else {b"Authorization": header.encode()}
            )
            for url in (rollout.endpoint.url, rollout.endpoint.url.replace("r-1", "r-2")):
                response = await http.post(f"{url}/chat/completions", headers=headers, json={})
                assert response.status_code == 401
                assert response.json()["error"].keys() == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/v1/rollouts/r-2/chat/completions", 404),
        ("POST", "/v1/rollouts/r-1/completions", 404),
        ("POST", "/v1/rollouts//chat/completions", 404),
        ("POST", "/v1/rollouts/r-1/../r-2/chat/completions", 404),
        ("POST", "/v1/chat/completions", 404),
        ("POST", "/v1/rollouts/r-2/callback", 404),
        ("GET", "/v1/rollouts/r-1/chat/completions", 405),
        ("GET", "/", 404),
    ],
)
async def test_a_wrong_place(between: Start, method: str, path: str, status: int) -> None:
    """Only the rollout's own URL is there."""
    with ScriptedPolicy() as upstream:
        async with between(upstream.url) as rollout:
            root = rollout.endpoint.url.removesuffix("/v1/rollouts/r-1")
            response = await rollout.http.request(method, root + path, json={})
    assert response.status_code == status
    assert response.json()["error"]["message"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"junk",
        b"[]",
        b'"text"',
        b"\xff\xfe",
        b'{"temperature": NaN}',
        b'{"temperature": 1e999}',
        b'{"a":' * 100_000,
        b'{"a": ' + b"9" * 5000 + b"}",
    ],
)
async def test_a_junk_body(between: Start, body: bytes) -> None:
    """400, without a word of what was sent, and nothing goes upstream."""
    with ScriptedPolicy() as upstream:
        async with between(upstream.url) as rollout:
            response = await rollout.post(body)
            assert await rollout.findings() == {}
    assert response.status_code == 400
    assert response.json()["error"]["message"].startswith("the body is not")


async def test_a_body_that_is_not_encoded_as_it_says(between: Start) -> None:
    """400 like any other junk."""
    with ScriptedPolicy() as upstream:
        async with between(upstream.url) as rollout:
            response = await rollout.post(b"{}", **{"Content-Encoding": "gzip"})
    assert response.status_code == 400


async def test_what_is_no_http_is_not_shown(
    between: Start, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """It may hold a key, and a traceback would tear the display."""
    with ScriptedPolicy() as upstream:
        async with between(upstream.url) as rollout:
            address = httpx.URL(rollout.endpoint.url)
            for end in (b"Content-Length: 1\r\nTransfer-Encoding: chunked", b"No Header: x"):
                head = b"POST /v1 HTTP/1.1\r\nAuthorization: Bearer sek-ret\r\n"
                reader, writer = await asyncio.open_connection(address.host, address.port)
                writer.write(head + end + b"\r\n\r\n")
                assert b" 400 " in await reader.readline()
                writer.close()
    captured = capsys.readouterr()
    assert captured.out + captured.err + caplog.text == ""


async def test_a_callback_with_junk_for_a_sample(between: Start) -> None:
    """The report goes out all the same."""
    with ScriptedPolicy("4") as upstream:
        async with between(upstream.url) as rollout:
            await rollout.bytes_of()
            for messages in ([1, None, {"role": 5, "content": {"a": [1]}}], {}, "x"):
                url = rollout.endpoint.callback_url or ""
                response = await rollout.http.post(url, json={"sample": {"messages": messages}})
                assert response.json()["trajectory"]["samples"]["gateway"]["final_metrics"] == {}


@pytest.mark.parametrize("messages", ["null", "[]", '[1, null, {"content": [[]]}]', '"hi"', "{}"])
async def test_messages_that_are_none(between: Start, messages: str) -> None:
    """The upstream judges them, as it would have."""
    with ScriptedPolicy(respond=lambda request: "4") as upstream:
        async with between(upstream.url) as rollout:
            direct = await rollout.http.post(
                f"{upstream.url}/chat/completions", json={"messages": json.loads(messages)}
            )
            through = await rollout.post(f'{{"messages": {messages}}}'.encode())
            report = await rollout.end()
    assert through.status_code == direct.status_code
    assert report["calls"] == 1


@pytest.mark.parametrize("depth", [100, 400, 900, 5000])
async def test_a_deep_body(between: Start, depth: int) -> None:
    """It is passed on or refused; the call is counted once, and the next one is answered."""
    deep = b"[" * depth + b"]" * depth
    with ScriptedPolicy(respond=lambda request: "4") as upstream:
        async with between(upstream.url) as rollout:
            body = b'{"messages": [{"role": "assistant", "content": %s}]}' % deep
            assert (await rollout.post(body)).status_code in {200, 400}
            assert (await rollout.ask()).status_code == 200
            assert (await rollout.end())["calls"] in {1, 2}


async def test_a_huge_body(between: Start) -> None:
    """413 as soon as it is too long, and the gateway goes on."""
    with ScriptedPolicy("4") as upstream:
        async with between(upstream.url) as rollout:
            response = await rollout.post(b'{"a": "' + b"x" * (65 * 1024 * 1024) + b'"}')
            assert response.status_code == 413
            assert response.json()["error"]["message"] == "the body is longer than 64 MiB"
            assert (await rollout.ask()).status_code == 200


async def test_a_rollout_that_has_ended(between: Start) -> None:
    """Work that it left behind gets no answer any more; its server may still report."""
    with ScriptedPolicy("4") as upstream:
        async with between(upstream.url) as rollout:
            await rollout.ask()
            rollout.gateway.report(job(), None)
            assert (await rollout.ask()).status_code == 404
            assert await rollout.call_back()
            gone = await rollout.http.post(rollout.endpoint.callback_url or "", json={})
            assert gone.status_code == 404  # nothing of it is kept
    assert len(upstream.requests) == 1


async def test_a_connection_that_says_nothing(between: Start) -> None:
    """It holds nothing up."""
    with ScriptedPolicy("4") as upstream:
        async with between(upstream.url) as rollout:
            url = httpx.URL(rollout.endpoint.url)
            _, writer = await asyncio.open_connection(url.host, url.port)
            writer.write(b"POST /v1/rollouts/r-1/chat/completions HTTP/1.1\r\nContent-Le")
            assert (await rollout.ask()).status_code == 200
            writer.close()
