"""What becomes of an answer that is whole, in every shape in which endpoints send it."""

import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from osmosis_ai.rollout.policy import PolicyPiece, PolicyReply
from osmosis_ai.rollout.policy._sse import EventDecoder
from osmosis_ai.rollout.testing import (
    Comment,
    Pause,
    ToolCall,
    chunk,
    raw_reply,
    reply,
    stream_reply,
)

USER = {"role": "user", "content": "2+2?"}
USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
CALL = {"id": "call_0", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}


async def test_pieces_come_first_and_the_reply_last(serve: Any) -> None:
    """`stream` yields what each chunk adds and ends in what `complete` returns."""
    script = reply(
        ["4", "!"], reasoning="hm", tool_calls=[ToolCall("add", ['{"a"', ": 1}"])], usage=USAGE
    )
    client, _ = serve(script, script)
    *pieces, last = [item async for item in client.stream([USER])]
    assert [(p.content, p.reasoning, [c.arguments for c in p.tool_calls]) for p in pieces] == [
        ("", "hm", []),
        ("4", "", []),
        ("!", "", []),
        ("", "", ['{"a"']),
        ("", "", [": 1}"]),
    ]
    assert isinstance(last, PolicyReply)
    assert last.message == (await client.complete([USER])).message
    assert last.message == {
        "role": "assistant",
        "content": "4!",
        "reasoning_content": "hm",
        "tool_calls": [CALL],
    }
    assert last.finish_reason == "tool_calls"
    assert last.tool_calls == [CALL]
    assert not last.truncated


@pytest.mark.parametrize("options", [{}, {"usage_on_finish": True}, {"one_chunk": True}])
async def test_usage_is_taken_wherever_it_is(serve: Any, options: dict[str, Any]) -> None:
    """In a last chunk without choices, on the finish chunk, or in the only chunk."""
    client, _ = serve(reply("4", usage=USAGE, **options))
    answered = await client.complete([USER])
    assert (answered.text, answered.usage) == ("4", USAGE)


async def test_what_was_not_sent_is_absent(serve: Any) -> None:
    """Nothing is made up: neither on the reply nor in its annotations."""
    client, _ = serve(
        raw_json({"choices": [{"message": {"content": "4"}, "finish_reason": "stop"}]})
    )
    answered = await client.complete([USER])
    assert answered == PolicyReply(
        message={"role": "assistant", "content": "4"}, finish_reason="stop"
    )
    assert answered.annotated == answered.message


async def test_annotations_hold_what_was_sent(serve: Any) -> None:
    """`annotated` is the message plus model, usage, time, tokens and log probabilities."""
    script = reply(
        "4",
        usage=USAGE,
        prompt_token_ids=[1, 2],
        token_ids=[3],
        logprobs=[{"token": "4", "logprob": -0.5}],
    )
    client, _ = serve(script)
    answered = await client.complete([USER])
    assert answered.annotated == {
        "role": "assistant",
        "content": "4",
        "model": answered.model,
        "usage": USAGE,
        "created_at": answered.created,
        "prompt_token_ids": [1, 2],
        "token_ids": [3],
        "logprobs": [-0.5],
    }
    assert None not in (answered.model, answered.created)


CONTENTS: list[tuple[list[dict[str, Any]], str]] = [
    ([{"content": None}], ""),
    ([{}], ""),
    ([{"content": ""}], ""),
    ([{"content": []}], ""),
    ([{"content": [{"type": "text", "text": ""}]}], ""),
    ([{"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}], "ab"),
    ([{"content": [{"text": "a"}, "b"]}, {"content": "c"}], "abc"),
    ([{"content": "a"}, {"content": None}, {"content": "b"}], "ab"),
]


@pytest.mark.parametrize(("deltas", "content"), CONTENTS)
async def test_b40_content_in_any_form_is_text(
    serve: Any, deltas: list[dict[str, Any]], content: str
) -> None:
    """Null, empty, missing and lists of parts all work, and an empty answer is an answer."""
    client, _ = serve(stream_reply(*(chunk(**d) for d in deltas), chunk(finish_reason="stop")))
    answered = await client.complete([USER])
    assert answered.message == {"role": "assistant", "content": content}


@pytest.mark.parametrize(
    ("sent", "kept"), [({"content": None}, None), ({}, None), ({"content": ""}, "")]
)
async def test_b40_content_beside_tool_calls_stays_as_sent(
    serve: Any, sent: dict[str, Any], kept: str | None
) -> None:
    """The endpoint gets back what it sent: null where there was no text, empty text where empty."""
    call = {"index": 0, **CALL}
    client, _ = serve(stream_reply(chunk(tool_calls=[call], **sent, finish_reason="tool_calls")))
    answered = await client.complete([USER])
    assert answered.message == {"role": "assistant", "content": kept, "tool_calls": [CALL]}
    assert answered.text == ""


@pytest.mark.parametrize(
    "kind", ["application/json", "Application/JSON; charset=utf-8", "text/plain"]
)
async def test_a_whole_completion_instead_of_a_stream(serve: Any, kind: str) -> None:
    """An endpoint that answers in one JSON document is understood too."""
    message = {"role": "assistant", "content": "4", "tool_calls": [CALL, {**CALL, "id": None}]}
    completion = {
        "id": "x",
        "object": "chat.completion",
        "created": 7,
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
        "usage": USAGE,
    }
    client, _ = serve(raw_json(completion, kind))
    answered = await client.complete([USER])
    assert answered.message == {**message, "tool_calls": [CALL, {**CALL, "id": "call_1"}]}
    assert (answered.model, answered.created, answered.usage) == ("m", 7, USAGE)


async def test_a_message_in_place_of_the_delta(serve: Any) -> None:
    """One event may hold everything; after pieces it is a summary and doubles nothing."""
    whole = {"choices": [{"message": {"content": "4"}, "finish_reason": "stop"}]}
    opening = chunk(role="assistant", content="")
    client, _ = serve(
        stream_reply(whole),
        stream_reply(opening, whole),
        stream_reply(opening, chunk(content="4"), whole),
    )
    assert [(await client.complete([USER])).text for _ in range(3)] == ["4", "4", "4"]


async def test_only_the_first_choice_counts(serve: Any) -> None:
    """Other choices are other answers."""
    other = {"choices": [{"index": 1, "delta": {"content": "5"}, "finish_reason": "length"}]}
    client, _ = serve(
        stream_reply(other, chunk(content="4"), other, chunk(finish_reason="stop"), other)
    )
    answered = await client.complete([USER])
    assert (answered.text, answered.finish_reason) == ("4", "stop")


async def test_done_may_be_missing(serve: Any) -> None:
    """The finish reason says that the answer is whole; even the last blank line may be missing."""
    finish = b'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}'
    client, _ = serve(
        stream_reply(chunk(content="4", finish_reason="stop"), done=False),
        stream_reply(chunk(content="4"), finish, done=False),
        stream_reply(chunk(content="4", finish_reason="stop"), b"data: [DONE]", done=False),
    )
    for _ in range(3):
        assert (await client.complete([USER])).text == "4"


async def test_reasoning_under_either_name(serve: Any) -> None:
    """`reasoning` and `reasoning_content` mean the same, and both at once are not doubled."""
    client, _ = serve(
        stream_reply(
            chunk(reasoning="a"),
            chunk(reasoning_content="b", reasoning="b"),
            chunk(content="4", reasoning=None, finish_reason="stop"),
        )
    )
    answered = await client.complete([USER])
    assert answered.message == {"role": "assistant", "content": "4", "reasoning_content": "ab"}


async def test_a_refusal_is_kept(serve: Any) -> None:
    """A refusal is an answer with a key of its own."""
    client, _ = serve(stream_reply(chunk(refusal="No"), chunk(refusal=".", finish_reason="stop")))
    answered = await client.complete([USER])
    assert answered.message == {"role": "assistant", "content": "", "refusal": "No."}


async def test_the_providers_own_keys_are_kept_once(serve: Any) -> None:
    """Of the message, the choice and the chunk; lists are put together."""
    first = chunk(content="4", annotations=[1], thinking_signature="s")
    second = chunk(annotations=[2], thinking_signature="s", finish_reason="stop")
    first |= {"id": "x", "system_fingerprint": "fp"}
    second |= {"id": "x", "system_fingerprint": "fp"}
    second["choices"][0]["stop_reason"] = 7
    client, _ = serve(stream_reply(first, second))
    answered = await client.complete([USER])
    assert answered.message["annotations"] == [1, 2]
    assert answered.message["thinking_signature"] == "s"
    assert answered.extra == {"id": "x", "system_fingerprint": "fp", "stop_reason": 7}


async def test_a_character_split_between_chunks_is_one_again(serve: Any) -> None:
    """JSON escapes can put the halves of one character into two chunks."""
    client, _ = serve(
        stream_reply(
            b'data: {"choices":[{"delta":{"content":"a\\ud83d"}}]}\n\n',
            b'data: {"choices":[{"delta":{"content":"\\ude00"},"finish_reason":"stop"}]}\n\n',
        )
    )
    assert (await client.complete([USER])).text == "a\U0001f600"


STREAM = (
    b"\xef\xbb\xbf: ping\r\n\r\n"
    b'event: message\r\nid: 1\r\ndata: {"choices":[{"delta":{"content":"h\xc3\xa9\xe2\x80\xa8 "}}]}'
    b"\r\n\r\n: ping\n\n:\n\n"
    b'data:{"choices":\ndata: [{"delta":\ndata:\ndata: {"content":"\xf0\x9f\x98\x80"}}]}\n\n'
    b"retry: 5\n\n"
    b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\r\rdata: [DONE]\n\n'
)


@settings(max_examples=200, deadline=None)
@given(cuts=st.sets(st.integers(1, len(STREAM) - 1)))
def test_any_split_into_reads_gives_the_same_events(cuts: set[int]) -> None:
    """Comments, line ends of each kind, data over several lines, characters cut in half."""
    whole = EventDecoder().feed(STREAM)
    decoder = EventDecoder()
    places = [0, *sorted(cuts), len(STREAM)]
    parts = [STREAM[a:b] for a, b in itertools.pairwise(places)]
    assert [event for part in parts for event in decoder.feed(part)] == whole
    assert [event.data[:1] for event in whole] == ["{", "{", "{", "["]


async def test_an_odd_but_valid_stream_over_a_socket(serve: Any) -> None:
    """The same stream, sent byte by byte."""
    steps = [step for byte in STREAM for step in (bytes([byte]), Pause(0))]
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
    client, _ = serve(raw_reply(head, *steps))
    assert (await client.complete([USER])).text == "hé\u2028 \U0001f600"


async def test_only_comments_in_between(serve: Any) -> None:
    """Comments keep a connection busy and mean nothing."""
    client, _ = serve(reply(["4", "2"]).insert(1, Comment(), Comment("ping")))
    pieces = [item async for item in client.stream([USER])]
    assert pieces[:2] == [PolicyPiece("4"), PolicyPiece("2")]


def raw_json(payload: dict[str, Any], kind: str = "application/json") -> Any:
    """Answer with one JSON document."""
    body = json.dumps(payload).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return raw_reply(head.encode() + body)
