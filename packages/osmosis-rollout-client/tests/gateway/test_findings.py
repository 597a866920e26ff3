"""What the calls of a rollout and its sample tell about each other."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import httpx
import pytest
from between import QUESTION, Start, job
from hypothesis import given
from hypothesis import strategies as st

from osmosis_ai.rollout.eval._gateway._calls import Calls
from osmosis_ai.rollout.eval._gateway._findings import Finding, findings
from osmosis_ai.rollout.policy import PolicyReply
from osmosis_ai.rollout.testing import PolicyRequest, Reply, ScriptedPolicy, ToolCall, reply

type Messages = list[dict[str, Any]]


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def says(text: str, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **more}


SYSTEM = {"role": "system", "content": "Be brief."}


def ended(*exchanges: tuple[Messages, dict[str, Any]]) -> Calls:
    """Return calls that were made one after another, each with its prompt and its answer."""
    calls = Calls()
    for prompt, answer in exchanges:
        call = calls.begin()
        calls.end(call, prompt, [PolicyReply(message=answer, finish_reason="stop")], None)
    return calls


def found(
    calls: Calls, sample: Sequence[dict[str, Any]] | None, prompt: Messages
) -> dict[str, Any]:
    behind = None if sample is None else calls.behind(sample, prompt)
    told: list[Finding] = list(findings(calls.all, behind))
    return {finding.kind: (finding.places, finding.message) for finding in told}


def rewritten(*prompts: Messages) -> list[int | None]:
    """Return where each prompt rewrites; every call is answered with `a<its number>`."""
    calls = ended(*((prompt, says(f"a{n}")) for n, prompt in enumerate(prompts, 1)))
    return [call.rewrote and call.rewrote[0] for call in calls.all]


A1, A2, A3 = says("a1"), says("a2"), says("a3")
U1, U2, U3 = user("u1"), user("u2"), user("u3")


@pytest.mark.parametrize(
    ("prompts", "places"),
    [
        ([[U1], [U1, A1, U2], [U1, A1, U2, A2, U3]], [None, None, None]),
        ([[U1], [U1], [U1, A2, U2]], [None, None, None]),
        ([[SYSTEM, U1], [SYSTEM, U2], [SYSTEM, U3]], [None, None, None]),
        ([[SYSTEM, U1], [user("sub")], [SYSTEM, U1, A1, U2]], [None, None, None]),
        ([[U1], [U1, A1, user("are you sure?")], [U1, A1, U2]], [None, None, None]),
        ([[U1, says("example"), U2], [U1, says("example"), U3]], [None, None]),
        ([[U1], [U2, U3]], [None, None]),
        ([[U1], [U1, A1, says("by hand"), U2]], [None, None]),
        ([[U1], [U1, says("not a1"), U2]], [None, 1]),
        ([[U1], [U1, A1, U2], [user("u1, shorter"), A1, U2, A2, U3]], [None, None, 0]),
        ([[U1], [U1, A1, U2], [U1, A1, user("changed"), A2, U3]], [None, None, 2]),
        ([[SYSTEM, U1], [SYSTEM, U1, A1, U2], [SYSTEM, A1, U2, A2, U3]], [None, None, 1]),
        ([[U1], [SYSTEM, U1, A1, U2]], [None, 0]),
    ],
)
def test_prompts_that_rewrite_earlier_turns(
    prompts: list[Messages], places: list[int | None]
) -> None:
    """Going on, asking again, side questions and beginning anew are none of it."""
    assert rewritten(*prompts) == places


def test_calls_at_the_same_time_know_nothing_of_each_other() -> None:
    """What was not there yet cannot be rewritten."""
    calls = Calls()
    one, other = calls.begin(), calls.begin()
    answered = [PolicyReply(message=A1, finish_reason="stop")]
    calls.end(one, [U1], answered, None)
    calls.end(other, [U2, A1, U3], answered, None)
    assert other.rewrote is None


def test_the_first_turn_that_differs_is_told() -> None:
    """By the call, the message and its role."""
    calls = ended(([U1], A1), ([U1, A1, U2], A2), ([U1, A1, user("x"), A2, U3], A3))
    words = "prompt rewrote earlier turns, the first that differs in call 3 is message 3 (user)"
    assert found(calls, None, [U1]) == {"rewritten": ([3], words)}


def test_turns_that_no_call_produced() -> None:
    """They bypassed the policy; what came with the row did not."""
    calls = ended(([U1, says("example"), U2], A1))
    sample = [U1, says("example"), U2, says("my own"), U3, A1, says("example")]
    words = "assistant turns 1, 3 of the sample came from no call: the policy was bypassed"
    assert found(calls, sample, [U1, says("example"), U2]) == {"bypassed": ([1, 3], words)}


def test_answers_that_never_entered_the_sample() -> None:
    """A call for each turn is needed: the same words twice are two turns."""
    calls = ended(([U1], A1), ([U1], A1), ([U1], A2))
    assert found(calls, [U1, A1], [U1]) == {
        "unused": ([2, 3], "calls 2, 3 answered, but not in the sample")
    }


def test_without_a_sample_only_the_calls_tell() -> None:
    """A rollout that failed has bypassed nothing."""
    assert found(ended(([U1], A1)), None, [U1]) == {}


def test_lengths_tries_failures_and_seconds() -> None:
    """Each is told with the calls that it was."""
    calls = ended(([U1], A1), ([U1], A1))
    cut = PolicyReply(message=A2, finish_reason="length")
    calls.end(last := calls.begin(), [U1], [cut], None)
    calls.end(calls.begin(), [U1], [], "the upstream answered 500: no")
    last.retries, last.began = 2, last.began - 61
    assert found(calls, None, []) == {
        "length": ([3], "call 3 cut by the length limit"),
        "retried": ([3], "call 3 answered only after another try"),
        "slow": ([3], "call 3 longer than 60 s"),
        "failed": ([4], "call 4 failed: the upstream answered 500: no"),
    }


ARGUMENTS = '{"city": "Oslo", "days": 3}'
ANSWER = {
    "role": "assistant",
    "content": "Let me see.",
    "reasoning_content": "hm",
    "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "w", "arguments": ARGUMENTS}}
    ],
}
FORMS: dict[str, Messages] = {
    "as it was answered": [ANSWER],
    "without the reasoning, with the arguments as an object, and parts for text": [
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "Let me see."}],
            "tool_calls": [
                {"id": "x", "function": {"name": "w", "arguments": {"days": 3, "city": "Oslo"}}}
            ],
        }
    ],
    "strands": [
        {
            "role": "assistant",
            "content": [
                {"reasoningContent": {"reasoningText": {"text": "hm"}}},
                {"text": "Let me see.\n"},
                {"toolUse": {"toolUseId": "c1", "name": "w", "input": json.loads(ARGUMENTS)}},
            ],
        }
    ],
    "items of the responses api": [
        {"type": "reasoning", "summary": [{"text": "hm"}]},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Let me see."}],
        },
        {"type": "function_call", "call_id": "c1", "name": "w", "arguments": ARGUMENTS},
    ],
}


@pytest.mark.parametrize("form", FORMS)
def test_frameworks_may_write_a_turn_in_their_own_way(form: str) -> None:
    """It is the same turn, in samples and in later prompts."""
    calls = ended(([U1], ANSWER), ([U1, *FORMS["as it was answered"], U2], A2))
    assert found(calls, [U1, *FORMS[form], U2, A2], [U1]) == {}
    if form != "strands" and "responses" not in form:
        calls = ended(([U1], ANSWER), ([U1, *FORMS[form], U2], A2))
        assert calls.all[1].rewrote is None


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=12), st.data())
def test_a_conversation_that_only_grows_is_never_rewritten(texts: list[str], data: Any) -> None:
    """However often the same is said, and whatever is asked on the side."""
    calls, history = Calls(), [U1]
    for text in texts:
        if data.draw(st.booleans()):
            side = calls.begin()
            replies = [PolicyReply(message=says("side"), finish_reason="stop")]
            calls.end(side, [*history, user("so?")], replies, None)
        call = calls.begin()
        calls.end(
            call, list(history), [PolicyReply(message=says(text), finish_reason="stop")], None
        )
        history += [says(text), user(text)]
    assert [call.rewrote for call in calls.all] == [None] * len(calls.all)
    assert None not in calls.behind(history, [U1])


async def test_the_server_is_told_which_call_made_which_step(between: Start) -> None:
    """A call whose answer was thrown away, and a turn by hand, shift nothing.

    Without a sample, all calls are told: the server may have a part of the conversation.
    """

    def respond(request: PolicyRequest) -> Reply:
        used = {"prompt_tokens": request.number, "completion_tokens": 1}
        return reply(f"a{request.number}", usage=used)

    with ScriptedPolicy(respond=respond) as upstream:
        async with between(upstream.url) as rollout:
            for _ in range(3):
                await rollout.policy.complete(QUESTION)
            lost = await rollout.call_back()
            kept = await rollout.call_back([*QUESTION, A1, U2, says("by hand"), U3, A3])
    counts = [
        [call.get("prompt_tokens") for call in told["llm_call_metrics"]] for told in (lost, kept)
    ]
    assert counts == [[1, 2, 3], [1, None, 3]]
    totals = {"total_prompt_tokens": 6, "total_completion_tokens": 3}
    assert lost["final_metrics"] == kept["final_metrics"] == totals


async def test_the_end_waits_for_servers_that_have_something_to_tell(between: Start) -> None:
    """A rollout whose result was polled may be reported a moment later."""
    with ScriptedPolicy(reply("4")) as upstream:
        async with between(upstream.url) as rollout:
            await rollout.policy.complete(QUESTION)
            rollout.gateway.report(job(), [*QUESTION, says("4")])
            ending = asyncio.create_task(rollout.gateway.stop())
            await asyncio.sleep(0)
            assert not ending.done()
            assert await rollout.call_back([*QUESTION, says("4")])
            await ending
            with pytest.raises(httpx.ConnectError):
                await rollout.ask()


async def test_tool_calls_in_a_conversation(between: Start) -> None:
    """The usual agent loop leaves nothing to find."""
    call = ToolCall("calculator", {"expression": "2+2"})
    with ScriptedPolicy(reply(tool_calls=[call]), "4") as upstream:
        async with between(upstream.url) as rollout:
            messages = list(QUESTION)
            answer = await rollout.policy.complete(messages)
            result = {"role": "tool", "tool_call_id": answer.tool_calls[0]["id"], "content": "4"}
            messages += [answer.annotated, result]
            messages += [(await rollout.policy.complete(messages)).annotated]
            assert await rollout.findings(messages) == {}
