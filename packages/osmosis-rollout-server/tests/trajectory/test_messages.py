"""Which step a message becomes, and what of it goes where."""

import json
from typing import Any

import pytest
from chats import convert

from osmosis_ai.rollout.trajectory import ObservationResult, Step

USER = {"role": "user", "content": "2+2?"}


def call(call_id: Any = "x", arguments: Any = "{}", name: Any = "f") -> dict[str, Any]:
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def turn(*calls: Any, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls), **more}


def result(call_id: Any, content: Any = "4", **more: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content, **more}


def results_of(step: Step) -> list[ObservationResult]:
    assert step.observation is not None
    return step.observation.results


def call_ids(step: Step) -> list[str]:
    return [call.tool_call_id for call in step.tool_calls or ()]


@pytest.mark.parametrize(
    ("role", "source", "extra"),
    [
        ("system", "system", None),
        ("developer", "system", {"original_role": "developer"}),
        ("user", "user", None),
        ("assistant", "agent", None),
        ("critic", "user", {"original_role": "critic"}),
        (None, "user", {"original_role": None}),
        (["a"], "user", {"original_role": ["a"]}),
    ],
)
def test_b41_roles(role: Any, source: str, extra: Any) -> None:
    """A role becomes a source; where that says less, the role is kept."""
    (step,) = convert({"role": role, "content": "hi"}).steps
    assert (step.source, step.message, step.extra) == (source, "hi", extra)


def test_a_message_without_a_role_is_a_users() -> None:
    """It is not thrown away."""
    (step,) = convert({"content": "hi"}).steps
    assert (step.source, step.extra) == ("user", {"original_role": None})


def test_results_belong_to_the_nearest_turn_before() -> None:
    """Ids that every turn uses again are answered in their own turn, across other messages too."""
    steps = convert(
        USER,
        turn(call("call_0")),
        result("call_0", "one"),
        USER,
        result("call_0", "late"),
        turn(call("call_0")),
        {"role": "system", "content": "note"},
        result("call_0", "two"),
    ).steps
    assert [step.source for step in steps] == ["user", "agent", "user", "agent", "system"]
    assert [r.content for r in results_of(steps[1])] == ["one", "late"]
    assert [r.content for r in results_of(steps[3])] == ["two"]


def test_b53_unknown_missing_and_early_results() -> None:
    """What matches no call of its turn is kept without a reference."""
    steps = convert(result("a"), turn(call("a")), result("b"), result(None), result("")).steps
    orphan, step = steps
    assert (orphan.source, orphan.message) == ("system", "")
    assert orphan.extra == {"original_role": "tool"}
    assert results_of(orphan)[0].extra == {"tool_call_id": "a"}
    unknown, missing, empty = results_of(step)
    assert {r.source_call_id for r in results_of(step)} == {None}
    assert unknown.extra == {"tool_call_id": "b"}
    assert missing.extra is None
    assert empty.extra == {"tool_call_id": ""}


def test_b53_duplicate_ids_are_made_unique() -> None:
    """Two calls with one id stay two calls, and get their results in order."""
    (step,) = convert(
        turn(call("x"), call("x"), call("x_2")), result("x", "1"), result("x", "2")
    ).steps
    assert call_ids(step) == ["x", "x_3", "x_2"]
    assert [c.extra for c in step.tool_calls or ()] == [
        None,
        {"original_id": "x"},
        None,
    ]
    assert [r.source_call_id for r in results_of(step)] == ["x", "x_3"]


def test_b53_missing_and_numeric_ids() -> None:
    """A call without an id gets one by its place; a number is read as its digits."""
    (step,) = convert(turn(call(None), call(5), call(""), call({"a": 1})), result(5)).steps
    assert call_ids(step) == ["call_0", "5", "call_2", "call_3"]
    assert results_of(step)[0].source_call_id == "5"
    (step,) = convert(turn(call(None), call("call_0")), result("call_0"), result("call_0_2")).steps
    assert call_ids(step) == ["call_0_2", "call_0"]
    assert [r.source_call_id for r in results_of(step)] == ["call_0", "call_0_2"]


def test_many_equal_ids_stay_cheap() -> None:
    """Thousands of calls with one id are told apart without comparing each with each."""
    (step,) = convert(turn(*[call("x")] * 20_000)).steps
    assert len(set(call_ids(step))) == 20_000


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('{"a": 1}', {"a": 1}),
        ({"a": 1}, {"a": 1}),
        ("{}", {}),
        ({}, {}),
        ("", {}),
        (None, {}),
        ('"{\\"a\\":1}"', {"_raw": '"{\\"a\\":1}"'}),
        ('["x"]', {"_raw": '["x"]'}),
        (["x"], {"_raw": '["x"]'}),
        ([], {"_raw": "[]"}),
        ("null", {"_raw": "null"}),
        ("NaN", {"_raw": "NaN"}),
        ('{"a": NaN}', {"_raw": '{"a": NaN}'}),
        ('{"a": 1e999}', {"_raw": '{"a": 1e999}'}),
        ('{"a":1}{"b":2}', {"_raw": '{"a":1}{"b":2}'}),
        ('{"q": "abc', {"_raw": '{"q": "abc'}),
        ("[" * 100_000, {"_raw": "[" * 100_000}),
        (5, {"_raw": "5"}),
        (" ", {"_raw": " "}),
        ('{"a": "\\ud83d"}', {"a": "\ufffd"}),
        ('{"a": 123456789012345678901234567890}', {"a": "123456789012345678901234567890"}),
        ('{"a": 1234567890123456789}', {"a": 1234567890123456789}),
    ],
)
def test_b37_b38_arguments(arguments: Any, expected: Any) -> None:
    """Arguments are a JSON object, or the raw text; no text turns into an empty object."""
    (step,) = convert(turn(call("x", arguments))).steps
    assert [c.arguments for c in step.tool_calls or ()] == [expected]


def test_malformed_calls() -> None:
    """Calls of any shape are kept, with the name `unknown` where they have none."""
    flat = {"call_id": "c", "name": "g", "arguments": "{}"}
    custom = {"id": "y", "type": "custom", "custom": {"name": "sh", "input": "ls"}}
    (step,) = convert(turn("what", None, {"function": None}, call(name=7), flat, custom)).steps
    calls = step.tool_calls or []
    assert [c.function_name for c in calls] == ["unknown"] * 4 + ["g", "sh"]
    assert calls[0].arguments == {"_raw": "what"}
    assert calls[3].extra == {"original_name": 7}
    assert calls[4].extra == {"call_id": "c"}
    assert calls[5].arguments == {"_raw": "ls"}


@pytest.mark.parametrize("malformed", ["text", {"id": "x"}, 5])
def test_calls_that_are_no_list_go_to_extra(malformed: Any) -> None:
    """They are no calls, and not lost."""
    (step,) = convert({"role": "assistant", "content": "a", "tool_calls": malformed}).steps
    assert step.tool_calls is None
    assert step.extra == {"tool_calls": malformed}


def test_legacy_function_calls() -> None:
    """The old form makes a tool call too, which its result names by function."""
    (step,) = convert(
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "4"},
    ).steps
    assert call_ids(step) == ["call_0"]
    (answer,) = results_of(step)
    assert answer.source_call_id == "call_0"
    assert answer.extra == {"name": "f", "original_role": "function"}


@pytest.mark.parametrize(
    "content", [None, "", [], [{"text": ""}], [{"type": "text", "text": ""}]], ids=str
)
def test_b40_empty_content(content: Any) -> None:
    """Null, empty and missing content are an empty message, with and without calls."""
    for calls in ([], [call()]):
        (step,) = convert({"role": "assistant", "content": content, "tool_calls": calls}).steps
        assert step.message == ""
    (step,) = convert({"role": "assistant"}).steps
    assert step.message == ""


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([{"type": "text", "text": "a"}, {"type": "output_text", "text": "b"}, "c"], "a\nb\nc"),
        ([{"text": "a"}, {"toolUse": {"name": "f"}}], 'a\n{"toolUse":{"name":"f"}}'),
        ({"type": "text", "text": "a"}, "a"),
        ([{"type": "refusal", "refusal": "no"}], '{"type":"refusal","refusal":"no"}'),
        ([{"type": "text", "text": 5}], '{"type":"text","text":5}'),
        ([None, 1.5, True], "null\n1.5\ntrue"),
        (5, "5"),
        (float("nan"), "null"),
        (b"abc", "<3 bytes>"),
        (("a", "b"), "a\nb"),
    ],
)
def test_content_shapes(content: Any, message: str) -> None:
    """Texts are joined by newlines; what is no text becomes compact JSON."""
    (step,) = convert({"role": "user", "content": content}).steps
    assert step.message == message


def test_what_parts_say_besides_their_text_is_kept() -> None:
    """Annotations of a part go to `extra`, with the part's index."""
    part = {"type": "output_text", "text": "a", "annotations": [{"url": "u"}], "logprobs": None}
    (step,) = convert({"role": "assistant", "content": ["x", part]}).steps
    assert step.extra == {"content_parts": [{"index": 1, "annotations": [{"url": "u"}]}]}


def test_reasoning() -> None:
    """It has a field on agent steps; elsewhere, or when it is no text, it goes to `extra`."""
    assistant = {"role": "assistant", "content": "a"}
    steps = convert(
        {**assistant, "reasoning_content": "r"},
        {**assistant, "reasoning": "r"},
        {**assistant, "reasoning_content": "r", "reasoning": "r"},
        {**assistant, "reasoning_content": "r", "reasoning": "other"},
        {**assistant, "reasoning_content": "", "reasoning_details": [1]},
        {**assistant, "reasoning": ["r"]},
        {"role": "user", "content": "a", "reasoning_content": "r", "tool_calls": [call()]},
    ).steps
    assert [step.reasoning_content for step in steps] == ["r", "r", "r", "r", "", None, None]
    assert [step.extra for step in steps[2:6]] == [
        None,
        {"reasoning": "other"},
        {"reasoning_details": [1]},
        {"reasoning": ["r"]},
    ]
    assert steps[6].extra == {"reasoning_content": "r", "tool_calls": [call()]}


def test_other_keys_go_to_extra() -> None:
    """Names, refusals and annotations are kept; nulls say nothing; an `extra` is merged."""
    steps = convert(
        {"role": "user", "content": "a", "name": "ann", "refusal": None},
        {"role": "assistant", "content": "", "refusal": "no", "extra": {"k": 1}},
        {"role": "assistant", "content": "", "k": 2, "extra": {"k": 1}},
        turn(call()),
        result("x", "4", name="f", is_error=True, timestamp=5),
    ).steps
    assert [step.extra for step in steps[:3]] == [
        {"name": "ann"},
        {"refusal": "no", "k": 1},
        {"k": 2, "extra": {"k": 1}},
    ]
    assert results_of(steps[3])[0].extra == {"name": "f", "is_error": True, "timestamp": 5}


def test_tools_that_an_integration_hands_over() -> None:
    """Definitions on the first message become the agent's; anything else there is left alone."""
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"x": "\ud83d"}}}]
    document = convert({"role": "system", "content": "Be brief.", "tool_definitions": tools}, USER)
    assert document.agent.tool_definitions is not None
    assert document.agent.tool_definitions[0]["function"]["parameters"] == {"x": "\ufffd"}
    assert document.steps[0].extra is None
    for odd in ("f", [], [1], {"f": 1}):
        document = convert({**USER, "tool_definitions": odd})
        assert document.agent.tool_definitions is None
        assert document.steps[0].extra == {"tool_definitions": odd}
    document = convert(USER, {**USER, "tool_definitions": tools})
    assert document.agent.tool_definitions is None


def test_b23_surrogates_are_replaced_in_the_document_alone() -> None:
    """The sample keeps its text; real pairs are joined."""
    message = {
        "role": "tool",
        "content": "a\ud83d \ud83d\ude00 \udcb2 \x00 \ufffe",
        "k\udcb2": "\udcb2",
    }
    (step,) = convert(message).steps
    (answer,) = results_of(step)
    assert answer.content == "a\ufffd \U0001f600 \ufffd \x00 \ufffe"
    assert answer.extra == {"k\ufffd": "\ufffd"}
    assert message["content"] == "a\ud83d \ud83d\ude00 \udcb2 \x00 \ufffe"


def test_b22_values_that_json_cannot_hold() -> None:
    """Each is replaced where it stands, and the rest of the message stays."""
    cycle: dict[str, Any] = {"a": 1}
    cycle["self"] = cycle
    odd = {
        "nan": float("nan"),
        "huge": 2**64,
        "endless": 10**5000,
        "bytes": b"abc",
        "set": {"b", "a"},
        "tuple": (1, 2),
        "keys": {1: "a", "1": "b", (1, 2): "c", None: "d"},
        "cycle": cycle,
        "type": object,
    }
    (step,) = convert({"role": "user", "content": "a", "odd": odd}).steps
    assert step.extra == {
        "odd": {
            "nan": None,
            "huge": "18446744073709551616",
            "endless": hex(10**5000),
            "bytes": "<3 bytes>",
            "set": ["a", "b"],
            "tuple": [1, 2],
            "keys": {"1": "a", "1_": "b", "[1,2]": "c", "null": "d"},
            "cycle": {"a": 1, "self": "<dict>"},
            "type": "<type>",
        }
    }


@pytest.mark.parametrize("levels", [90, 150, 250, 400])
def test_deep_nesting_is_kept_as_text(levels: int) -> None:
    """What readers could not open becomes JSON text from some level on, in arguments too."""
    deep: Any = "bottom"
    for _ in range(levels):
        deep = [deep]
    text = json.dumps({"a": deep})
    (step,) = convert({**turn(call("x", text), call("y", {"a": deep})), "deep": deep}).steps
    assert step.extra is not None
    for copy in (step.extra["deep"], *(c.arguments["a"] for c in step.tool_calls or ())):
        assert "bottom" in str(copy)
        assert depth_of(copy) <= 100


def depth_of(value: Any) -> int:
    depth = 0
    while isinstance(value, list):
        value, depth = value[0], depth + 1
    return depth
