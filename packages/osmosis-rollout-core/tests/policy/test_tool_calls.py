"""Fragments of tool calls, in the ways in which servers tell them apart, and fail to."""

import asyncio
import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from osmosis_ai.rollout.policy import PolicyClient, PolicyError, PolicyReply
from osmosis_ai.rollout.testing import Reply, ScriptedPolicy, ToolCall, chunk, reply, stream_reply

USER = {"role": "user", "content": "2+2?"}
Q1, Q2 = '{"q":1}', '{"q":2}'


def part(
    arguments: Any = None, *, index: Any = None, id: Any = None, name: str | None = None
) -> dict[str, Any]:
    """Return one fragment; what is None is not sent."""
    function = {"name": name, "arguments": arguments}
    fragment = {
        "index": index,
        "id": id,
        "function": {k: v for k, v in function.items() if v is not None},
    }
    return {k: v for k, v in fragment.items() if v is not None}


def streamed(
    *fragments: dict[str, Any] | list[dict[str, Any]], reason: str = "tool_calls"
) -> Reply:
    """Return a stream of one chunk per fragment, or list of fragments."""
    chunks = [chunk(tool_calls=f if isinstance(f, list) else [f]) for f in fragments]
    return stream_reply(*chunks, chunk(finish_reason=reason))


def calls(answered: PolicyReply) -> list[tuple[str, str, str]]:
    """Return id, name and arguments of each call."""
    assert all(call["type"] == "function" for call in answered.tool_calls)
    return [
        (call["id"], call["function"]["name"], call["function"]["arguments"])
        for call in answered.tool_calls
    ]


FORMS = {
    "one per chunk": [part(Q1, index=0, id="a", name="f"), part(Q2, index=1, id="b", name="g")],
    "both in one chunk": [
        [part(Q1, index=0, id="a", name="f"), part(Q2, index=1, id="b", name="g")]
    ],
    "index repeated": [part(Q1, index=0, id="a", name="f"), part(Q2, index=0, id="b", name="g")],
    "index repeated, in fragments": [
        part("", index=0, id="a", name="f"),
        part('{"q"', index=0),
        part(":1}", index=0, id="a"),
        part('{"q"', index=0, id="b", name="g"),
        part(":2}", index=0),
    ],
    "index repeated, interleaved by id": [
        part('{"q"', index=0, id="a", name="f"),
        part('{"q"', index=0, id="b", name="g"),
        part(":1}", index=0, id="a"),
        part(":2}", index=0, id="b"),
    ],
    "interleaved over two indexes": [
        part('{"q"', index=0, id="a", name="f"),
        part('{"q"', index=1, id="b", name="g"),
        part(":1}", index=0),
        part(":2}", index=1),
    ],
    "second index first": [
        part(Q2, index=1, id="b", name="g"),
        part(Q1, index=0, id="a", name="f"),
    ],
    "index omitted": [part(Q1, id="a", name="f"), part(Q2, id="b", name="g")],
    "index omitted, in fragments": [
        part(id="a", name="f"),
        part('{"q"'),
        part(":1}"),
        part('{"q"', id="b", name="g"),
        part(":2}", id="b"),
    ],
    "index omitted, interleaved by id": [
        part('{"q"', id="a", name="f"),
        part('{"q"', id="b", name="g"),
        part(":1}", id="a"),
        part(":2}", id="b"),
    ],
    "id missing on the first fragment": [
        part('{"q"', index=0, name="f"),
        part(":1}", index=0, id="a"),
        part('{"q"', index=1, name="g"),
        part(":2}", index=1, id="b"),
    ],
    "id null in words": [
        part('{"q"', index=0, id="a", name="f"),
        part(":1}", index=0, id="null"),
        part('{"q"', index=1, id="b", name="g"),
        part(":2}", index=1, id=""),
    ],
    "name sent twice": [
        part('{"q"', index=0, id="a", name="f"),
        part(":1}", index=0, id="a", name="f"),
        part('{"q"', index=1, id="b", name="g"),
        part(":2}", index=1, name="g"),
        part("", index=1, name="g"),
    ],
    "name after the id": [
        part(index=0, id="a"),
        part(Q1, index=0, name="f"),
        part(index=1, id="b"),
        part(Q2, index=1, name="g"),
    ],
}


@pytest.mark.parametrize("form", FORMS)
async def test_b33_fragments_become_the_two_calls(serve: Any, form: str) -> None:
    """Two parallel calls stay two calls, each with its own arguments."""
    client, _ = serve(streamed(*FORMS[form]))
    answered = await client.complete([USER])
    assert calls(answered) == [("a", "f", Q1), ("b", "g", Q2)]
    assert not answered.truncated


@pytest.mark.parametrize(
    "fragments",
    [
        [part(Q1, index=0, name="f"), part(Q2, index=1, name="g")],
        [part(Q1, index=0, name="f"), part(Q2, index=0, name="g")],
        [part(Q1, name="f"), part(Q2, name="g")],
        [[part(Q1, name="f"), part(Q2, name="g")]],
        [part(Q1, index=0, id="null", name="f"), part(Q2, index=0, id="null", name="g")],
        [part('{"q":', name="f"), part("1}"), part('{"q":', name="g"), part("2}")],
    ],
)
async def test_b33_calls_without_any_id_get_ids_by_their_place(serve: Any, fragments: Any) -> None:
    """A name after complete arguments starts the next call; ids are `call_<place>`."""
    client, _ = serve(streamed(*fragments))
    answered = await client.complete([USER])
    assert calls(answered) == [("call_0", "f", Q1), ("call_1", "g", Q2)]


async def test_b33_the_same_tool_twice_without_ids(serve: Any) -> None:
    """A name that comes again after complete arguments is a second call, not a repeat."""
    client, _ = serve(streamed(part(Q1, index=0, name="f"), part(Q2, index=0, name="f")))
    assert calls(await client.complete([USER])) == [("call_0", "f", Q1), ("call_1", "f", Q2)]


async def test_a_made_up_id_takes_no_other_calls_id(serve: Any) -> None:
    """Made-up ids keep clear of those that the endpoint gave."""
    client, _ = serve(
        streamed(part(Q1, index=0, name="f"), part(Q2, index=1, id="call_0", name="g"))
    )
    assert [call["id"] for call in (await client.complete([USER])).tool_calls] == [
        "call_1",
        "call_0",
    ]


async def test_an_id_that_is_a_number_becomes_text(serve: Any) -> None:
    """Chat completions know ids as text only."""
    client, _ = serve(streamed(part(Q1, index=0, id=5, name="f")))
    assert calls(await client.complete([USER])) == [("5", "f", Q1)]


@pytest.mark.parametrize(
    "fragments",
    [
        [part(Q1, index=0, id="a")],
        [part(index=0)],
        [part(Q1, index="x", id="a", name="f")],
        [part(Q1, index=0, id="a", name="f"), part("", index=0, id="a", name="g")],
        [part("", index=0, name="f"), part("", index=0, name="g")],
        [part('{"q"', index=0, id="a", name="f"), part('{"q"', index=0, name="g")],
        [[part(index=0, id="a", name="f"), part(index=1, id="b", name="g")], [part(Q1), part(Q2)]],
        [part('{"q"', index=0, id="a", name="f"), part({"q": 1}, index=0)],
    ],
)
async def test_b33_what_cannot_be_put_together_fails(serve: Any, fragments: Any) -> None:
    """No name, no place, contradicting names: an error instead of a guess."""
    client, _ = serve(streamed(*fragments))
    with pytest.raises(PolicyError, match="tool calls cannot be put together") as caught:
        await client.complete([USER])
    assert caught.value.is_endpoint_failure


async def test_a_legacy_function_call_fails(serve: Any) -> None:
    """It is streamed in pieces too; keeping the first would pass off a part as the whole."""
    client, _ = serve(
        stream_reply(
            chunk(function_call={"name": "f", "arguments": '{"a"'}),
            chunk(function_call={"arguments": ":1}"}, finish_reason="function_call"),
        )
    )
    with pytest.raises(PolicyError, match="function_call"):
        await client.complete([USER])


@pytest.mark.parametrize(
    "text",
    [
        '"{\\"a\\":1}"',
        '["x"]',
        "null",
        "",
        "{}",
        "NaN",
        '{"a":1}{"b":2}',
        "{'a': 1}",
        '["a"' + "]" * 2000,
    ],
)
async def test_b38_arguments_are_kept_to_the_letter(serve: Any, text: str) -> None:
    """Whatever the policy wrote is the record; nothing is repaired or replaced."""
    client, _ = serve(streamed(part(text, index=0, id="a", name="f")))
    answered = await client.complete([USER])
    assert calls(answered) == [("a", "f", text)]
    assert not answered.truncated


@pytest.mark.parametrize("value", [{"a": 1}, ["x"], 5, {"ä": "\u2028"}])
async def test_b38_arguments_that_are_no_text_become_it(serve: Any, value: Any) -> None:
    """Servers that send the parsed value get JSON text, the form that the wire knows."""
    client, _ = serve(streamed(part(value, index=0, id="a", name="f")))
    ((_, _, text),) = calls(await client.complete([USER]))
    assert json.loads(text) == value


@pytest.mark.parametrize(
    ("text", "reason", "truncated"),
    [
        ('{"q": "abc', "length", True),
        ('{"q": "abc', "tool_calls", True),
        ('{"q": tr', "stop", True),
        ('{"q": 1', "tool_calls", True),
        ("", "length", True),
        ("", "tool_calls", False),
        ('{"q": 1}', "length", False),
        ('{"q": 1}x', "tool_calls", False),
        ("not json", "tool_calls", False),
        ("not json", "length", True),
    ],
)
async def test_b37_cut_arguments_are_flagged_and_kept(
    serve: Any, text: str, reason: str, truncated: bool
) -> None:
    """Arguments that end in the middle stay the raw text; badly written ones are not cut."""
    client, _ = serve(streamed(part(text, index=0, id="a", name="f"), reason=reason))
    answered = await client.complete([USER])
    assert calls(answered) == [("a", "f", text)]
    assert answered.truncated is truncated


async def test_a_calls_own_extras_are_kept(serve: Any) -> None:
    """Some providers want their signatures back with the call."""
    first = part('{"q"', index=0, id="a", name="f") | {
        "extra_content": {"sig": "x"},
        "type": "function",
    }
    client, _ = serve(streamed(first, part(":1}", index=0)))
    (call,) = (await client.complete([USER])).tool_calls
    assert call["extra_content"] == {"sig": "x"}
    assert "index" not in call


ARGUMENTS = st.dictionaries(st.text(max_size=5), st.text(max_size=12) | st.integers(), max_size=3)


@st.composite
def fragmented(draw: st.DrawFn) -> tuple[str, list[str]]:
    """Draw arguments and one way to cut their text into fragments."""
    text = json.dumps(draw(ARGUMENTS), ensure_ascii=draw(st.booleans()))
    cuts = sorted(draw(st.sets(st.integers(0, len(text)), max_size=6)))
    places = [0, *cuts, len(text)]
    return text, [text[a:b] for a, b in itertools.pairwise(places)]


@settings(max_examples=40, deadline=None)
@given(drawn=st.lists(fragmented(), min_size=1, max_size=4), interleaved=st.booleans())
def test_any_fragmentation_gives_the_same_calls(
    drawn: list[tuple[str, list[str]]], interleaved: bool
) -> None:
    """However arguments are cut and mixed, each call gets its own text back."""
    script = [ToolCall(f"f{i}", pieces, id=f"id{i}") for i, (_, pieces) in enumerate(drawn)]
    with ScriptedPolicy(reply(tool_calls=script, interleaved=interleaved)) as policy:
        answered = asyncio.run(PolicyClient(policy.url).complete([USER]))
    assert calls(answered) == [(f"id{i}", f"f{i}", text) for i, (text, _) in enumerate(drawn)]
