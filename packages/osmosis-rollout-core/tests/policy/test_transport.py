"""What is under HTTP's surface: TLS, proxies, silence, and bytes that are no HTTP."""

import asyncio
import gc
import gzip
import os
import re
import socket
import ssl
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import trustme

from osmosis_ai.rollout.policy import (
    PolicyClient,
    PolicyError,
    _http,
    close_policy_clients,
    transport,
)
from osmosis_ai.rollout.testing import Gate, raw_reply, reply

USER = {"role": "user", "content": "2+2?"}
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
CHUNKED = STREAM + b"Transfer-Encoding: chunked\r\n\r\n"
EVENT = b'data: {"choices":[{"delta":{"content":"4"},"finish_reason":"stop"}]}\n\n'


async def failure(client: PolicyClient) -> PolicyError:
    """Call the policy and return how it failed."""
    with pytest.raises(PolicyError) as caught:
        await client.complete([USER])
    return caught.value


@pytest.mark.parametrize(
    "answer",
    [
        CHUNKED + b"zz\r\nno chunk\r\n0\r\n\r\n",
        CHUNKED + b"%x\r\n%s\r\nffffffffffffffffffff\r\n" % (len(EVENT), EVENT),
        CHUNKED + b"5\r\ndata:",
        STREAM + b"Content-Length: 5, 6\r\n\r\ndata:",
        STREAM + b"Content-Length: five\r\n\r\ndata:",
        STREAM + b"Content-Encoding: gzip\r\nContent-Length: 9\r\n\r\nnot gzip.",
        STREAM + b"Content-Encoding: br\r\nContent-Length: 9\r\n\r\nno brotli",
        STREAM + b"X: " + b"y" * 100_000 + b"\r\n\r\n",
        STREAM + b"No colon\r\n\r\n",
        b"HTTP/9.9 twohundred OK\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n" + EVENT,
        b"SSH-2.0-OpenSSH_9.9\r\n",
        b"\x15\x03\x01\x00\x02\x02\x28",
        b"\x00" * 100,
    ],
)
async def test_whatever_a_peer_sends_it_is_one_error(serve: Any, answer: bytes) -> None:
    """What is no HTTP, or stops being it, is the endpoint's failure and shows nothing it sent."""
    client, policy = serve(*[raw_reply(answer)] * 3)
    error = await failure(client)
    assert error.is_endpoint_failure or error.status == 101
    assert policy.url in error.message or error.status
    assert "no chunk" not in error.message
    assert "yyy" not in error.message


async def test_a_compressed_answer_is_read(serve: Any) -> None:
    """It is not asked for, but some gateways compress everything."""
    body = gzip.compress(EVENT)
    head = STREAM + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body)
    client, _ = serve(raw_reply(head, body))
    assert (await client.complete([USER])).text == "4"


@pytest.mark.parametrize(
    "piece", [b"x" * 1000, b"\n" * 1000, b"data: x\n" * 100], ids=["a line", "no data", "an event"]
)
@pytest.mark.parametrize("kind", [b"text/event-stream", b"application/json"])
async def test_an_answer_without_end_is_an_error(
    serve: Any, monkeypatch: pytest.MonkeyPatch, kind: bytes, piece: bytes
) -> None:
    """It would take the memory of every rollout in the process."""
    monkeypatch.setattr(_http, "_MAX_ANSWER_BYTES", 1 << 20)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\n\r\n" % kind
    client, policy = serve(raw_reply(head, *[piece * 100] * 200))
    assert "does not end within 1 MiB" in (await failure(client)).message
    assert len(policy.requests) == 1


@pytest.mark.parametrize("place", [0, 1])
async def test_silence_is_an_error_and_not_tried_again(
    serve: Any, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    """An endpoint that took the request and died may have sampled it."""
    monkeypatch.setattr(transport, "_SILENCE_SEC", 1.0)
    client, policy = serve(reply("4").insert(place, Gate()))
    assert "nothing came for 1 s" in (await failure(client)).message
    assert len(policy.requests) == 1


@pytest.mark.skipif(not Path("/dev/fd").is_dir(), reason="open files cannot be counted here")
@pytest.mark.parametrize("refusal", [b"", b"HTTP/1.1 413 -\r\nContent-Length: 0\r\n\r\n"])
async def test_a_peer_that_does_not_read_keeps_no_connection_open(refusal: bytes) -> None:
    """What was not sent when the call ended is dropped with the connection."""
    arrived, over = asyncio.Event(), asyncio.Event()

    async def stand_still(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # pyright: ignore[reportAttributeAccessIssue]
        writer.write(refusal)
        arrived.set()
        await over.wait()
        writer.transport.abort()

    def open_files() -> int:
        return len(os.listdir("/dev/fd"))

    loop = asyncio.get_running_loop()
    strict = loop.get_exception_handler()
    if [int(part) for part in aiohttp.__version__.split(".")[:2]] < [3, 14]:
        # It forgets a future of the lost connection, and asyncio tells of that.
        loop.set_exception_handler(None)
    async with await asyncio.start_server(stand_still, "127.0.0.1", 0) as server:
        before = open_files()
        client = PolicyClient(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1")
        call = asyncio.create_task(client.complete([USER | {"content": "x" * 30_000_000}]))
        await arrived.wait()
        await asyncio.sleep(0.5)  # until nothing more fits into the sockets
        call.cancel()
        await asyncio.wait([call])
        for _ in range(200):
            if open_files() == before + 1:
                break
            await asyncio.sleep(0.05)
        left = open_files() - before - 1  # the server's end
        over.set()
        await close_policy_clients()
    gc.collect()
    loop.set_exception_handler(strict)
    assert left == 0


async def test_a_proxy_that_is_none_for_http_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, with what can be used instead, and without its password."""
    monkeypatch.setenv("http_proxy", "socks5://me:sek-ret@127.0.0.1:9")
    error = await failure(PolicyClient("http://policy.invalid/v1"))
    assert "only http:// and https:// ones can be used" in error.message
    assert "socks5://127.0.0.1:9" in error.message
    assert "sek-ret" not in str(error)


@pytest.mark.parametrize(
    "proxy", ["http://me:sek-ret@[::1", "http://me:sek-ret@h\u2100st", "http://me:sek-ret@:80"]
)
async def test_a_proxy_that_is_no_url_is_the_calls_error(
    monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    """Its text is not shown: where the password ends in it, nobody knows."""
    monkeypatch.setenv("http_proxy", proxy)
    error = await failure(PolicyClient("http://policy.invalid/v1"))
    assert "the environment names a proxy" in error.message
    assert "sek-ret" not in str(error)


async def test_a_proxy_that_opens_no_way_is_not_waited_for_without_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To a proxy that takes a CONNECT and then says nothing there is no connection."""
    monkeypatch.setattr(transport, "_CONNECT_SEC", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{silent.getsockname()[1]}")
        async with asyncio.timeout(60):
            error = await failure(PolicyClient("https://policy.invalid/v1"))
    await close_policy_clients()
    assert "no connection within 1 s" in error.message


async def test_certificates_that_cannot_be_read_are_the_calls_error(
    serve: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """A call with TLS says so; one without needs none."""
    request.addfinalizer(transport.tls_context.cache_clear)
    transport.tls_context.cache_clear()
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "missing.pem"))
    error = await failure(PolicyClient("https://policy.invalid/v1"))
    assert "the certificates of SSL_CERT_FILE cannot be read: No such file" in error.message
    client, _ = serve("4")
    assert (await client.complete([USER])).text == "4"


async def test_certificates_are_checked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """One of nobody known is an error that says so; `SSL_CERT_FILE` makes its maker known."""
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"?")
        writer.write(CHUNKED + b"%x\r\n%s\r\n0\r\n\r\n" % (len(EVENT), EVENT))
        await reader.read()
        writer.close()

    request.addfinalizer(transport.tls_context.cache_clear)
    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context) as server:
        port = server.sockets[0].getsockname()[1]
        client = PolicyClient(f"https://localhost:{port}/v1", api_key="sek-ret")
        error = await failure(client)
        assert re.search(rf"cannot connect to localhost:{port}: .*certificate", error.message)
        assert "sek-ret" not in str(error)
        await close_policy_clients()
        authority.cert_pem.write_to_path(tmp_path / "ca.pem")
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        transport.tls_context.cache_clear()
        assert (await client.complete([USER])).text == "4"
        await close_policy_clients()
