"""What is sent to the policy's endpoint, and where."""

import asyncio
import json
import math
from typing import Any

import pytest

from osmosis_ai.rollout import RolloutContext
from osmosis_ai.rollout.policy import PolicyClient, PolicyError, close_policy_clients
from osmosis_ai.rollout.testing import ScriptedPolicy, error_reply, reply

USER = {"role": "user", "content": "2+2?"}
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}


async def test_the_request_is_a_streaming_chat_completion(serve: Any) -> None:
    """Model name, stream and usage are set, tools and parameters go along, no key is made up."""
    client, policy = serve("4")
    await client.complete([USER], tools=[TOOL], temperature=0.5, seed=7, vendor={"top_k": 3})
    (request,) = policy.requests
    assert request.path == "/v1/chat/completions"
    assert request.body == {
        "model": "osmosis-rollout",
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": [USER],
        "tools": [TOOL],
        "temperature": 0.5,
        "seed": 7,
        "vendor": {"top_k": 3},
    }
    assert "authorization" not in request.headers
    assert "cookie" not in request.headers


async def test_stream_options_are_the_callers_if_given(serve: Any) -> None:
    """They can be changed, and left out by None; an empty list of tools is left out too."""
    client, policy = serve("a", "b")
    await client.complete([USER], stream_options={"include_usage": False}, tools=[])
    await client.complete([USER], stream_options=None)
    first, second = (request.body for request in policy.requests)
    assert first["stream_options"] == {"include_usage": False}
    assert "tools" not in first
    assert "stream_options" not in second


@pytest.mark.parametrize("params", [{"n": 2}, {"stream": False}])
async def test_what_would_break_one_call_one_sample_is_refused(params: dict[str, Any]) -> None:
    """Several answers, or no stream, cannot be asked for."""
    with pytest.raises(ValueError, match=next(iter(params))):
        await PolicyClient("http://127.0.0.1:9").complete([USER], **params)


@pytest.mark.parametrize("suffix", ["", "/", "//"])
async def test_the_url_may_end_in_slashes(serve: Any, suffix: str) -> None:
    """The route is appended to the base URL with one slash."""
    _, policy = serve("4")
    await PolicyClient(policy.url + suffix).complete([USER])
    assert policy.requests[0].path == "/v1/chat/completions"


async def test_a_query_stays_behind_the_path() -> None:
    """A base URL with a query keeps it, as gateways that carry a version there need."""
    heads: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readline())
        body = json.dumps({"choices": [{"message": {"content": "4"}, "finish_reason": "stop"}]})
        head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        answered = await PolicyClient(f"http://{host}:{port}/v1?api-version=2").complete([USER])
    assert answered.text == "4"
    assert heads == [b"POST /v1/chat/completions?api-version=2 HTTP/1.1\r\n"]


@pytest.mark.parametrize("url", ["", "ftp://x", "127.0.0.1:1", "http://", "http://x:y", "//x"])
async def test_a_url_that_cannot_work_is_named_as_such(url: str) -> None:
    """The error says what a URL must look like."""
    with pytest.raises(ValueError, match="http://"):
        await PolicyClient(url).complete([USER])


async def test_the_active_context_gives_url_and_key(serve: Any) -> None:
    """Without arguments each call goes where the context of that moment says."""
    _, one = serve("1")
    _, two = serve("2")
    client = PolicyClient()
    with RolloutContext(one.url, "key-1"):
        first = await client.complete([USER])
        with RolloutContext(two.url):
            second = await client.complete([USER])
    assert [first.text, second.text] == ["1", "2"]
    assert one.requests[0].headers["authorization"] == "Bearer key-1"
    assert "authorization" not in two.requests[0].headers


async def test_outside_a_context_the_error_names_it() -> None:
    """There is no default endpoint: neither without a context nor with an empty one."""
    with pytest.raises(RuntimeError, match="RolloutContext"):
        await PolicyClient().complete([USER])
    with RolloutContext(), pytest.raises(RuntimeError, match="RolloutContext"):
        await PolicyClient().complete([USER])


async def test_no_key_of_the_host_is_ever_sent(
    serve: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """Neither well-known variables nor a netrc give an endpoint credentials."""
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login host password host-secret\n")
    monkeypatch.setenv("NETRC", str(netrc))
    for name in ("OPENAI_API_KEY", "OSMOSIS_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.setenv(name, "host-secret")
    client, policy = serve("a", "b")
    await client.complete([USER])
    with RolloutContext(policy.url):
        await PolicyClient().complete([USER])
    assert all("authorization" not in request.headers for request in policy.requests)


async def test_a_password_in_the_url_serves_unless_there_is_a_key(serve: Any) -> None:
    """The key wins; the URL's own credentials are sent as basic authentication."""
    _, policy = serve("a", "b")
    url = policy.url.replace("http://", "http://user:pass%40@")
    await PolicyClient(url).complete([USER])
    await PolicyClient(url, api_key="k").complete([USER])
    sent = [request.headers["authorization"] for request in policy.requests]
    assert sent == ["Basic dXNlcjpwYXNzQA==", "Bearer k"]


async def test_b26_white_space_around_a_key_is_dropped(serve: Any) -> None:
    """A trailing newline is no part of a key, and a blank key is none."""
    _, policy = serve("a", "b", "c")
    for key in ("k\n", " ", ""):
        await PolicyClient(policy.url, api_key=key).complete([USER])
    sent = [request.headers.get("authorization") for request in policy.requests]
    assert sent == ["Bearer k", None, None]


@pytest.mark.parametrize("key", ["ключ", "a\nb", "a\x00b", "\ud83d"])
async def test_b26_an_unusable_key_is_refused_and_never_shown(serve: Any, key: str) -> None:
    """Nothing is sent, nothing tried again, and the text does not hold the key."""
    _, policy = serve()
    with pytest.raises(ValueError, match="api_key") as caught:
        await PolicyClient(policy.url, api_key=key).complete([USER])
    assert key not in str(caught.value)
    assert caught.value.__cause__ is None
    assert policy.requests == []


async def test_b41_roles_and_unknown_keys_are_sent_unchanged(serve: Any) -> None:
    """What a prompt calls its messages is between it and the endpoint."""
    client, policy = serve("4")
    messages: list[dict[str, Any]] = [
        {"role": "developer", "content": "Be brief.", "name": "ops"},
        {"role": "user", "content": [{"type": "text", "text": "2+2?"}]},
        {"role": "assistant", "content": None, "tool_calls": [], "reasoning_content": "hm"},
        {"role": "system", "content": "In the middle.", "cache_control": {"type": "ephemeral"}},
    ]
    await client.complete(messages)
    assert policy.requests[0].messages == messages


async def test_annotations_are_not_sent_back(serve: Any) -> None:
    """An annotated reply can stand in the conversation: its annotations stay at home."""
    client, policy = serve(reply("4", usage={"total_tokens": 3}, token_ids=[5]), "8")
    first = await client.complete([USER])
    question = {"role": "user", "content": "And twice?", "usage": "kept"}
    await client.complete([USER, first.annotated, question])
    assert first.annotated["usage"] == {"total_tokens": 3}
    assert policy.requests[1].messages == [USER, {"role": "assistant", "content": "4"}, question]


async def test_b23_only_the_sent_copy_is_repaired(serve: Any) -> None:
    """Lone surrogates, non-finite numbers and bytes are replaced on the wire, not at home."""
    client, policy = serve("4")
    message: dict[str, Any] = {
        "role": "tool",
        "content": "a\ud83d",
        "score": math.nan,
        "raw": b"ab",
    }
    await client.complete([USER, message])
    assert policy.requests[0].messages == [
        USER,
        {"role": "tool", "content": "a\ufffd", "score": None, "raw": "<2 bytes>"},
    ]
    assert message["content"] == "a\ud83d"


async def test_a_parameter_that_json_cannot_hold_is_named(serve: Any) -> None:
    """A parameter is never replaced by something else."""
    client, policy = serve()
    with pytest.raises(ValueError, match="temperature"):
        await client.complete([USER], temperature=math.nan, top_p=1)
    assert policy.requests == []


async def test_a_large_conversation_arrives_whole(serve: Any) -> None:
    """What is encoded off the loop and sent in pieces is the same request."""
    client, policy = serve("4")
    messages = [{"role": "user", "content": "ä" * 1_000_000}, USER]
    await client.complete(messages, temperature=1)
    assert policy.requests[0].messages == messages
    assert policy.requests[0].body["temperature"] == 1


async def test_b27_loopback_goes_past_the_proxy(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy of the environment has no part in calls to this machine."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    client, policy = serve("4", "5")
    assert (await client.complete([USER])).text == "4"
    on_localhost = PolicyClient(policy.url.replace("127.0.0.1", "localhost"))
    assert (await on_localhost.complete([USER])).text == "5"


async def test_b27_calls_to_elsewhere_use_the_proxy_and_failures_name_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The proxy gets the request; when it is down, the error says which one, without password."""
    with ScriptedPolicy("by proxy") as policy:
        monkeypatch.setenv("http_proxy", policy.url.removesuffix("/v1").replace("//", "//me:pw@"))
        answered = await PolicyClient("http://policy.invalid/v1").complete([USER])
        assert answered.text == "by proxy"
        assert policy.requests[0].headers["proxy-authorization"] == "Basic bWU6cHc="
    monkeypatch.setenv("http_proxy", "http://me:secret@127.0.0.1:9")
    with pytest.raises(Exception, match=r"proxy http://127\.0\.0\.1:9") as caught:
        await PolicyClient("http://policy.invalid/v1").complete([USER])
    assert "secret" not in str(caught.value)
    monkeypatch.setenv("no_proxy", ".invalid")
    with pytest.raises(Exception, match=r"policy\.invalid") as caught:
        await PolicyClient("http://policy.invalid/v1").complete([USER])
    assert "proxy" not in str(caught.value)


async def test_extra_headers_query_and_body(serve: Any) -> None:
    """They go where their names say; a body's parameter may be called like an argument."""
    client, policy = serve("4")
    await client.complete(
        [USER],
        extra_headers={"X-Tenant": "t 1", "User-Agent": "mine"},
        extra_query={"tag": ["a", "b c"], "debug": True},
        extra_body={"tools": [TOOL], "top_k": 3},
        top_k=2,
    )
    (request,) = policy.requests
    assert request.headers["x-tenant"] == "t 1"
    assert request.headers["user-agent"] == "mine"
    assert request.path == "/v1/chat/completions"
    assert request.query == "tag=a&tag=b+c&debug=true"
    assert request.body["tools"] == [TOOL]
    assert request.body["top_k"] == 3


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"extra_headers": {"authorization": "Bearer sek-ret-value"}}, "authorization.*api_key"),
        ({"extra_headers": {"Content-Type": "sek-ret-value"}}, "cannot set Content-Type"),
        ({"extra_headers": {"Host": "sek-ret-value"}}, "cannot set Host"),
        ({"extra_headers": {"X-A": "sek-ret-value\r\nX-B: 1"}}, "cannot send its X-A"),
        ({"extra_headers": {"X-A": "sek-ret-valu\u00e9"}}, "cannot send its X-A"),
        ({"extra_headers": {"sek-ret-value: x": "1"}}, "a name that no header can have"),
        ({"extra_query": {"version": "sek-ret-value"}}, "cannot set version.*already"),
        ({"extra_body": {"n": 2}}, "n must be 1"),
    ],
)
async def test_what_extras_cannot_be(extra: dict[str, Any], message: str) -> None:
    """What the call itself needs is not replaced, and nothing of a value is in the error."""
    client = PolicyClient("http://127.0.0.1:9/v1?version=")
    with pytest.raises(ValueError, match=message) as caught:
        await client.complete([USER], **extra)
    assert "sek-ret" not in str(caught.value)


@pytest.mark.parametrize(
    ("user", "query", "echoed"),
    [
        ("user:sek-ret@", "", "sek-ret"),
        ("user:sek-ret@", "", "dXNlcjpzZWstcmV0"),
        ("sek-ret@", "", "sek-ret"),
        ("sek-ret@", "", "c2VrLXJldDo="),
        ("", "?v=1&key=sek-ret%2Bvalue", "sek-ret+value"),
        ("", "?v=1&key=sek-ret%2Bvalue", "sek-ret%2Bvalue"),
    ],
)
async def test_secrets_of_the_url_are_not_quoted(user: str, query: str, echoed: str) -> None:
    """In whatever form: as they are meant, as the URL has them, or as the header was."""
    with ScriptedPolicy(error_reply(403, f"not {echoed}")) as policy:
        url = policy.url.replace("http://", f"http://{user}") + query
        with pytest.raises(PolicyError) as caught:
            await PolicyClient(url).complete([USER])
        await close_policy_clients()
    assert caught.value.message == "not [secret]"


async def test_a_server_that_repeats_extras_is_not_quoted_with_them(serve: Any) -> None:
    """Long values may be keys; short ones are left, as they are parts of ordinary words."""
    echoed = "no tenant sek-ret-value in eu with sek-ret-value-2, region eu"
    client, _ = serve(error_reply(403, echoed))
    with pytest.raises(PolicyError) as caught:
        await client.complete(
            [USER],
            extra_headers={"X-Tenant": "Token sek-ret-value", "X-Region": "eu"},
            extra_query={"key": "sek-ret-value-2"},
        )
    assert caught.value.message == "no tenant [secret] in eu with [secret], region eu"
