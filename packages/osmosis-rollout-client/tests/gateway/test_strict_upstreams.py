"""Upstreams that refuse the parameters which the gateway adds to what a rollout asks."""

from collections.abc import Callable
from typing import Any

import pytest
from between import QUESTION, Start

from osmosis_ai.rollout.testing import PolicyRequest, Reply, ScriptedPolicy, error_reply, reply

USAGE = {"prompt_tokens": 9, "completion_tokens": 1}
PLAIN = {"model": "real", "messages": QUESTION}
STREAM = PLAIN | {"stream": True}
ASKED = STREAM | {"stream_options": {"include_usage": True}}


def strict(*taken: str, status: int = 400) -> Callable[[PolicyRequest], Reply]:
    """Return what answers calls that have no other parameters than these."""

    def respond(request: PolicyRequest) -> Reply:
        unknown = request.body.keys() - STREAM.keys() - set(taken)
        usage = USAGE if "stream_options" in request.body else None
        return error_reply(status, "unknown parameter") if unknown else reply("4", usage=usage)

    return respond


@pytest.mark.parametrize("status", [400, 422])
async def test_what_is_added_is_left_out(
    between: Start, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    """It is tried once; no rollout notices, and the run is told what it will not know."""
    with ScriptedPolicy(respond=strict(status=status)) as upstream:
        async with between(upstream.url) as rollout:
            for _ in range(3):
                assert b'"4"' in await rollout.bytes_of()
            report = await rollout.end()
        url = f"{upstream.url}/chat/completions"
    assert [request.body for request in upstream.requests] == [ASKED, STREAM, STREAM, STREAM]
    assert (report["calls"], report["prompt_tokens"], report["findings"]) == (3, None, [])
    assert caplog.messages == [
        f"{url} refuses calls that ask for what the run wants to know (usage): "
        "it is not asked for that any more, and does not tell it."
    ]


async def test_each_upstream_is_asked_what_it_takes(
    between: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """One that is strict takes nothing from the others."""
    with (
        ScriptedPolicy(respond=strict()) as one,
        ScriptedPolicy(respond=strict("stream_options")) as other,
    ):
        async with between(one.url, other.url) as rollout:
            for _ in range(6):
                await rollout.bytes_of()
    assert [request.body for request in one.requests[:3]] == [ASKED, STREAM, STREAM]
    assert len(other.requests) > 1
    assert all(request.body == ASKED for request in other.requests)
    assert len(caplog.messages) == 1


async def test_usage_is_told_where_token_ids_are_not(
    between: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """Only what was refused is left out."""
    with ScriptedPolicy(respond=strict("stream_options")) as upstream:
        async with between(upstream.url, token_ids=True) as rollout:
            assert (await rollout.ask()).status_code == 200
            assert b'"4"' in await rollout.bytes_of()
            told = await rollout.call_back()
    first, *others = (request.body for request in upstream.requests)
    assert first.keys() - PLAIN.keys() == {
        *("logprobs", "return_token_ids", "return_meta_info", "return_prompt_token_ids")
    }
    assert others == [PLAIN, ASKED]
    assert told["llm_call_metrics"][1]["prompt_tokens"] == 9
    [message] = caplog.messages
    assert "(log probabilities, token ids)" in message


@pytest.mark.parametrize(
    "own",
    [{"stream_options": {"continuous_usage_stats": True}}, {"logprobs": False}, {"seed": 1}],
    ids=lambda own: next(iter(own)),
)
async def test_what_the_rollout_asks_for_stays(between: Start, own: dict[str, Any]) -> None:
    """It is sent as it came."""
    with ScriptedPolicy(error_reply(400), "4", "5") as upstream:
        async with between(upstream.url, token_ids=True) as rollout:
            assert b'"4"' in await rollout.bytes_of(**own)
            assert b'"5"' in await rollout.bytes_of(**own)
    added, *bare = (request.body for request in upstream.requests)
    assert added["stream_options"] == own.get("stream_options", {}) | {"include_usage": True}
    assert added["logprobs"] is True
    assert bare == [STREAM | own] * 2


async def test_what_is_refused_anyway_stays_refused(
    between: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """The rollout hears what is wrong with its own call, and the next call is asked for usage."""
    refusals = error_reply(400, "unknown parameter"), error_reply(422, "too long")
    with ScriptedPolicy(*refusals, reply("4", usage=USAGE)) as upstream:
        async with between(upstream.url) as rollout:
            async with rollout.stream() as response:
                await response.aread()
            await rollout.bytes_of()
            report = await rollout.end()
    assert response.status_code == 422
    assert response.json()["error"]["message"] == "too long"
    assert [request.body for request in upstream.requests] == [ASKED, STREAM, ASKED]
    assert report["prompt_tokens"] == 9
    assert [found["kind"] for found in report["findings"]] == ["failed"]
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("status", "own"),
    [(400, {"stream_options": {"include_usage": True}}), (401, {}), (404, {}), (413, {})],
)
async def test_other_refusals_are_not_tried_again(
    between: Start, status: int, own: dict[str, Any]
) -> None:
    """Nothing was added, or it is not what was refused."""
    with ScriptedPolicy(error_reply(status)) as upstream:
        async with between(upstream.url) as rollout, rollout.stream(**own) as response:
            assert response.status_code == status
    assert len(upstream.requests) == 1


async def test_a_busy_strict_upstream_is_waited_for(between: Start) -> None:
    """What the call without the parameters is answered is handled like any answer."""
    busy = error_reply(429, headers={"Retry-After": "0"})
    with ScriptedPolicy(error_reply(400), busy, error_reply(400), "4") as upstream:
        async with between(upstream.url) as rollout:
            assert b'"4"' in await rollout.bytes_of()
            assert await rollout.findings() == {"retried": "call 1 answered only after another try"}
    assert [request.body for request in upstream.requests] == [ASKED, STREAM] * 2
