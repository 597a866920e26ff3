"""Answers that are none: each is an error that says why, and never half an answer."""

import asyncio
import errno
import json
import os
from contextlib import aclosing
from typing import Any

import pytest

from osmosis_ai.rollout.policy import PolicyClient, PolicyError, PolicyPiece, PolicyReply
from osmosis_ai.rollout.testing import (
    DONE,
    Comment,
    Gate,
    Reply,
    ToolCall,
    chunk,
    error_reply,
    raw_reply,
    reply,
    stream_reply,
)

USER = {"role": "user", "content": "2+2?"}
KEY = "sk-policy-secret"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


async def failure(client: PolicyClient) -> PolicyError:
    """Call the policy and return how it failed."""
    with pytest.raises(PolicyError) as caught:
        await client.complete([USER])
    assert type(caught.value) is PolicyError
    return caught.value


@pytest.mark.parametrize(
    "script",
    [
        stream_reply(chunk(content="par"), done=False),
        stream_reply(chunk(content="par")),
        stream_reply(done=False),
        stream_reply(),
        stream_reply(Comment(), Comment(), done=False),
        stream_reply({"choices": []}),
        stream_reply({}),
        stream_reply(chunk(content="par", finish_reason="")),
        stream_reply(chunk(content="4", finish_reason="abort")),
        stream_reply(chunk(content=None, finish_reason="length")),
        stream_reply(chunk(content="", finish_reason="length")),
    ],
)
async def test_b34_an_answer_that_is_not_whole_is_a_failure_of_the_endpoint(
    serve: Any, script: Reply
) -> None:
    """No finish reason, nothing at all, or nothing before the limit: there is no answer."""
    client, policy = serve(script)
    error = await failure(client)
    assert error.status is None
    assert error.is_endpoint_failure
    assert len(policy.requests) == 1


async def test_b34_an_answer_cut_by_its_limit_is_an_answer(serve: Any) -> None:
    """What the policy said up to its limit counts, the reasoning too."""
    client, _ = serve(
        reply("par", finish_reason="length"),
        stream_reply(chunk(reasoning_content="hm"), chunk(finish_reason="length")),
    )
    assert (await client.complete([USER])).finish_reason == "length"
    assert (await client.complete([USER])).message["reasoning_content"] == "hm"


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("after", [1, 2, 3])
async def test_a_connection_that_breaks_in_the_middle_is_not_tried_again(
    serve: Any, after: int, reset: bool
) -> None:
    """After partial output there is no second attempt, even where the finish reason was sent."""
    client, policy = serve(reply("abc").cut(after, reset=reset))
    error = await failure(client)
    assert "broke off" in error.message
    assert policy.url in error.message
    assert error.status is None
    assert len(policy.requests) == 1


async def test_a_body_shorter_than_promised_is_broken_off(serve: Any) -> None:
    """The same without chunked framing."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 999\r\n\r\n"
    client, _ = serve(raw_reply(head, b'data: {"choices":[{"delta":{"content":"4"}}]}\n\n'))
    assert "broke off" in (await failure(client)).message


@pytest.mark.parametrize(
    ("event", "message"),
    [
        ({"error": {"message": "overloaded", "type": "server_error"}}, "overloaded"),
        ({"error": "overloaded"}, "overloaded"),
        ({"error": {"detail": "overloaded"}}, "overloaded"),
        ({"error": {"reason": 5}}, '{"reason": 5}'),
        ({"object": "error", "message": "overloaded", "code": 40303}, "overloaded"),
        (b'event: error\ndata: {"message": "overloaded"}\n\n', "overloaded"),
        (b"event: error\ndata: overloaded\n\n", "overloaded"),
        (b'data: "overloaded"\n\n', "overloaded"),
        ({"error": f"key {KEY} is over its limit"}, "key [secret] is over its limit"),
    ],
)
@pytest.mark.parametrize(
    "before", [(), (chunk(content="par"),), (chunk(content="4", finish_reason="stop"),)]
)
async def test_b35_an_error_inside_the_stream_raises_with_the_servers_message(
    serve: Any, before: tuple[Any, ...], event: Any, message: str
) -> None:
    """As the first event, after partial text, and after what looked like the end."""
    _, policy = serve(stream_reply(*before, event))
    error = await failure(PolicyClient(policy.url, api_key=KEY))
    assert error.message == message
    assert error.status is None
    assert error.is_endpoint_failure
    assert len(policy.requests) == 1


async def test_b35_the_error_may_name_a_status(serve: Any) -> None:
    """A refusal that comes late is still a refusal."""
    client, _ = serve(stream_reply({"error": {"message": "context too long", "code": 400}}))
    error = await failure(client)
    assert (error.status, error.is_endpoint_failure) == (400, False)


@pytest.mark.parametrize(
    "data", [b"{", b'{"choices": [', b"null", b"[1]", b"5", b"[" * 5000, b"\xff\xfe", b'""']
)
async def test_a_damaged_event_is_an_error(serve: Any, data: bytes) -> None:
    """What is no JSON object is never skipped."""
    client, _ = serve(stream_reply(chunk(content="4"), b"data: " + data + b"\n\n"))
    assert "damaged" in (await failure(client)).message


@pytest.mark.parametrize("reason", [{"a": 1}, ["stop"], 5])
async def test_a_finish_reason_that_is_no_text_is_an_error(serve: Any, reason: Any) -> None:
    """The endpoint's failure, not one of the workflow's code."""
    client, _ = serve(stream_reply(chunk(content="4", finish_reason=reason)))
    error = await failure(client)
    assert "holds a 'finish_reason' that is no text" in error.message


async def test_a_model_or_a_time_of_another_type_is_absent(serve: Any) -> None:
    """No answer is lost for it."""
    odd = {"model": {"a": 1}, "created": ["now"]}
    client, _ = serve(stream_reply(chunk(content="4", finish_reason="stop") | odd))
    reply = await client.complete([USER])
    assert (reply.text, reply.model, reply.created) == ("4", None, None)


@pytest.mark.parametrize("content", [5, {"a": 1}, [5], [{"type": "image_url", "image_url": {}}]])
async def test_content_that_is_no_text_is_an_error(serve: Any, content: Any) -> None:
    """A part that cannot be put into the message is never left out."""
    client, _ = serve(stream_reply(chunk(content=content, finish_reason="stop")))
    assert "no text" in (await failure(client)).message


@pytest.mark.parametrize(
    ("status", "error", "message"),
    [
        (400, "Unexpected message role", "Unexpected message role"),
        (404, {"detail": "no such rollout"}, "no such rollout"),
        (404, {"object": "error", "message": "no such model"}, "no such model"),
        (
            422,
            {"detail": [{"loc": ["body", "n"], "msg": "too big", "input": KEY}]},
            "body.n: too big",
        ),
        (400, {"error": "plain"}, "plain"),
        (400, {"error": {"message": f"bad key {KEY}"}}, "bad key [secret]"),
        (400, {"code": 7}, '{"code": 7}'),
        (400, {}, "Bad Request (it sent no message)"),
        (
            413,
            "<html><head><title>x</title></head><body><h1>Too&nbsp;large</h1></body>",
            "Too large",
        ),
        (500, f"<p>{KEY}", "[secret]"),
        (307, {}, "Temporary Redirect (it sent no message)"),
    ],
)
async def test_a_refusal_carries_the_servers_own_message(
    serve: Any, status: int, error: Any, message: str
) -> None:
    """In every shape that servers use; without the key, and without what was submitted."""
    _, policy = serve(error_reply(status, error))
    refused = await failure(PolicyClient(policy.url, api_key=KEY))
    assert refused.message == message
    assert refused.status == status
    assert str(refused) == f"the policy endpoint answered {status}: {message}"
    assert refused.is_endpoint_failure == (status >= 500)
    assert len(policy.requests) == 1


@pytest.mark.parametrize("body", [b"", b" \n", b"plain text", b"\xff\x00", b"[" * 5000])
async def test_a_refusal_with_any_body_is_one_error(serve: Any, body: bytes) -> None:
    """No body breaks the error itself."""
    client, _ = serve(Reply(steps=(body,), status=499, headers={}))
    refused = await failure(client)
    assert refused.status == 499
    assert refused.message


async def test_a_long_refusal_is_cut(serve: Any) -> None:
    """And the key is out of it before it is cut."""
    _, policy = serve(error_reply(400, "x" * 995 + KEY + "y" * 100_000))
    refused = await failure(PolicyClient(policy.url, api_key=KEY))
    assert len(refused.message) < 1100
    assert KEY[:5] not in refused.message


async def test_a_refusal_that_does_not_end_is_still_one(serve: Any) -> None:
    """The status has come, so the caller's deadline is not what is missed."""
    head = b"HTTP/1.1 500 Oops\r\nContent-Length: 9999\r\n\r\n"
    client, _ = serve(raw_reply(head, b"the model crashed", Gate()))
    async with asyncio.timeout(30):
        refused = await failure(client)
    assert (refused.status, refused.message) == (500, "the model crashed")


async def test_an_error_in_a_json_answer(serve: Any) -> None:
    """A status of 200 with an error in it is an error."""
    body = json.dumps({"error": {"message": "boom"}}).encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"
    client, _ = serve(raw_reply(head, body), raw_reply(HEAD, body), raw_reply(head, body[:9]))
    assert [(await failure(client)).message for _ in range(2)] == ["boom", "boom"]
    assert "damaged" in (await failure(client)).message


async def test_an_answer_that_is_a_web_page_is_none(serve: Any) -> None:
    """A proxy's or portal's page with status 200 is no answer of the policy."""
    client, _ = serve(
        Reply(steps=(b"<html>Sign in</html>",), status=200, headers={"Content-Type": "text/html"})
    )
    assert (await failure(client)).is_endpoint_failure


async def test_the_stream_raises_after_its_pieces(serve: Any) -> None:
    """Pieces without a reply at the end are no answer."""
    client, _ = serve(stream_reply(chunk(content="par"), {"error": "boom"}))
    items = client.stream([USER])
    assert await anext(items) == PolicyPiece("par")
    with pytest.raises(PolicyError, match="boom"):
        await anext(items)


@pytest.mark.parametrize("steps", [(), (chunk(content="par"),)])
async def test_cancelling_a_call_ends_the_request(serve: Any, steps: tuple[Any, ...]) -> None:
    """Before the first byte and after: the endpoint sees its client leave."""
    gate = Gate()
    client, policy = serve(stream_reply(*steps, gate, chunk(finish_reason="stop")))
    call = asyncio.create_task(client.complete([USER]))
    await asyncio.to_thread(gate.wait)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert await asyncio.to_thread(policy.requests[0].wait) == "disconnected"


async def test_a_deadline_ends_the_request(serve: Any) -> None:
    """`asyncio.timeout` around a call is all that a deadline takes."""
    gate = Gate()
    client, policy = serve(stream_reply(gate))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await client.complete([USER])
    assert await asyncio.to_thread(lambda: policy.wait_for_requests(1)[0].wait()) == "disconnected"


async def test_leaving_the_stream_early_ends_the_request(serve: Any) -> None:
    """Closing the generator tells the endpoint to stop."""
    gate = Gate()
    client, policy = serve(stream_reply(chunk(content="par"), gate, chunk(finish_reason="stop")))
    async with aclosing(client.stream([USER])) as items:
        assert await anext(items) == PolicyPiece("par")
    assert await asyncio.to_thread(policy.requests[0].wait) == "disconnected"


async def test_a_done_that_is_followed_by_silence_is_the_end(serve: Any) -> None:
    """An endpoint that says it is done and keeps the connection open holds nobody up."""
    gate = Gate()
    client, _ = serve(
        stream_reply(chunk(content="4", finish_reason="stop"), DONE, gate, done=False)
    )
    assert (await client.complete([USER])).text == "4"
    gate.open()


async def test_b15_a_dead_endpoint_is_an_error_of_the_endpoint(unused_port: int) -> None:
    """Nobody listens: after three attempts an error of the endpoint, which names it."""
    error = await failure(PolicyClient(f"http://127.0.0.1:{unused_port}/v1?key=query-secret"))
    assert f"http://127.0.0.1:{unused_port}/v1/chat/completions" in error.message
    reason = f"cannot connect to 127.0.0.1:{unused_port}: {os.strerror(errno.ECONNREFUSED)}"
    assert reason in error.message
    assert "query-secret" not in str(error)
    assert error.is_endpoint_failure


async def test_truncated_calls_are_kept_by_the_stream_as_well(serve: Any) -> None:
    """B37 holds for both ways of calling."""
    script = reply(tool_calls=[ToolCall("f", '{"q": "ab')], finish_reason="length")
    client, _ = serve(script)
    last = [item async for item in client.stream([USER])][-1]
    assert isinstance(last, PolicyReply)
    assert last.truncated
