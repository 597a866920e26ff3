"""What becomes of answers that are broken, cut or odd, through a real Strands agent."""

import asyncio
from typing import Any

import pytest
from strands import Agent, tool
from strands.types.exceptions import MaxTokensReachedException

from osmosis_ai.rollout import RolloutContext, RolloutSample
from osmosis_ai.rollout.integrations.agents.strands import OsmosisRolloutModel, OsmosisStrandsAgent
from osmosis_ai.rollout.policy import PolicyError
from osmosis_ai.rollout.testing import (
    Comment,
    Gate,
    Reply,
    ScriptedPolicy,
    ToolCall,
    chunk,
    error_reply,
    reply,
    stream_reply,
)

QUESTION = [{"role": "user", "content": "2+2?"}]


def build(tools: list[Any] | None = None, **kwargs: Any) -> OsmosisStrandsAgent:
    return OsmosisStrandsAgent(
        model=OsmosisRolloutModel(),
        messages=QUESTION,
        tools=tools,
        callback_handler=None,
        **kwargs,
    )


async def sample_of(rollout: RolloutContext) -> RolloutSample:
    sample = await rollout.get_sample()
    assert sample is not None
    return sample


def call_chunk(**fields: Any) -> dict[str, Any]:
    return chunk(tool_calls=[fields])


def recording_tool(name: str, runs: list[Any]) -> Any:
    @tool(name=name)
    def run(q: int | None = None) -> str:
        """Note what it was called with."""
        runs.append((name, q))
        return str(q)

    return run


FIRST = {"id": "a", "function": {"name": "f", "arguments": '{"q": 1}'}}
SECOND = {"id": "b", "function": {"name": "g", "arguments": '{"q": 2}'}}


@pytest.mark.parametrize(
    "chunks",
    [
        [call_chunk(index=0, **FIRST), call_chunk(index=0, **SECOND)],
        [call_chunk(**FIRST), call_chunk(**SECOND)],
        [
            call_chunk(index=0, id="a", function={"name": "f", "arguments": '{"q"'}),
            call_chunk(index=1, id="b", function={"name": "g", "arguments": '{"q": '}),
            call_chunk(index=0, function={"arguments": ": 1}"}),
            call_chunk(index=1, function={"arguments": "2}"}),
        ],
        [
            call_chunk(index=0, id="null", function={"name": "f", "arguments": ""}),
            call_chunk(index=0, id="a", function={"name": "f", "arguments": '{"q": 1}'}),
            call_chunk(index=1, **SECOND),
        ],
    ],
    ids=["repeated-index", "no-index", "interleaved", "late-id-and-name-twice"],
)
async def test_b33_parallel_calls_stay_apart(
    policy: ScriptedPolicy, rollout: RolloutContext, chunks: list[dict[str, Any]]
) -> None:
    """B33: both tools run once, each with its own arguments."""
    runs: list[Any] = []
    policy.add(stream_reply(*chunks, chunk(finish_reason="tool_calls")), "done")
    with rollout:
        await build([recording_tool("f", runs), recording_tool("g", runs)]).invoke_async()
    assert sorted(runs) == [("f", 1), ("g", 2)]
    told = [(one["tool_call_id"], one["content"]) for one in policy.requests[1].messages[-2:]]
    assert told == [("a", "1"), ("b", "2")]


async def test_b33_what_cannot_be_put_together_fails(
    policy: ScriptedPolicy, rollout: RolloutContext
) -> None:
    """B33: fragments that could belong to either call run no tool."""
    runs: list[Any] = []
    fragments = [{"function": {"arguments": '{"q"'}}, {"function": {"arguments": "1}"}}]
    policy.add(stream_reply(chunk(tool_calls=fragments), chunk(finish_reason="tool_calls")))
    with rollout, pytest.raises(PolicyError, match="cannot be put together"):
        await build([recording_tool("f", runs)]).invoke_async()
    assert runs == []


BROKEN = {
    "text-then-end": reply("par").cut(2),
    "text-then-quiet-end": stream_reply(chunk(content="par"), done=False),
    "done-without-finish": stream_reply(chunk(content="par")),
    "nothing": stream_reply(done=False),
    "only-comments": stream_reply(Comment(), Comment(), done=False),
    "empty-at-the-limit": stream_reply(chunk(content=None, finish_reason="length")),
    "server-error": error_reply(500, "burning"),
}


@pytest.mark.parametrize("answer", BROKEN.values(), ids=BROKEN)
async def test_b34_half_an_answer_is_none(
    policy: ScriptedPolicy, rollout: RolloutContext, answer: Reply
) -> None:
    """B34: an answer that was cut is the endpoint's failure; nothing of it enters the sample."""
    policy.add(answer)
    with rollout:
        with pytest.raises(PolicyError) as caught:
            await build().invoke_async()
        sample = await sample_of(rollout)
    assert caught.value.is_endpoint_failure
    assert [message["role"] for message in sample.messages] == ["user"]
    assert sample.trajectory_messages == QUESTION
    assert len(policy.requests) == 1


@pytest.mark.parametrize(
    "steps",
    [
        [{"error": {"message": "out of memory"}}],
        [chunk(content="par"), {"error": {"message": "out of memory"}}],
        [{"error": "out of memory"}],
    ],
    ids=["first", "after-text", "plain-text"],
)
async def test_b35_error_inside_the_stream(
    policy: ScriptedPolicy, rollout: RolloutContext, steps: list[dict[str, Any]]
) -> None:
    """B35: the server's message is raised, although it came with a 200 and a [DONE]."""
    policy.add(stream_reply(*steps))
    with rollout, pytest.raises(PolicyError, match="out of memory"):
        await build().invoke_async()


async def test_b35_a_failure_in_a_later_turn(
    policy: ScriptedPolicy, rollout: RolloutContext
) -> None:
    """B35: after tools have run Strands wraps the failure; it stays in the chain of causes."""
    runs: list[Any] = []
    policy.add(reply(tool_calls=[ToolCall("f", {"q": 1})]), error_reply(500, "burning"))
    with rollout:
        with pytest.raises(Exception, match="burning") as caught:
            await build([recording_tool("f", runs)]).invoke_async()
        sample = await sample_of(rollout)
    chain = [caught.value, caught.value.__cause__]
    assert any(isinstance(error, PolicyError) for error in chain)
    assert [message["role"] for message in sample.messages] == ["user", "assistant", "user"]


async def test_strands_never_retries_by_itself(
    policy: ScriptedPolicy, rollout: RolloutContext
) -> None:
    """A throttled or overflowing policy is an error at once, with Strands' default retries on."""
    policy.add(error_reply(400, "context length exceeded"))
    with rollout, pytest.raises(PolicyError, match="context length"):
        await build().invoke_async()
    assert len(policy.requests) == 1


CUT = '{"q": "abc'


async def test_b37_arguments_cut_by_length(policy: ScriptedPolicy, rollout: RolloutContext) -> None:
    """B37: no tool runs, no sentence is made up, and the record has the text that came."""
    runs: list[Any] = []
    policy.add(
        reply(
            "Let me see.",
            tool_calls=[ToolCall("f", {"q": 1}), ToolCall("f", CUT)],
            finish_reason="length",
        ),
        "Four.",
    )
    with rollout:
        agent = build([recording_tool("f", runs)])
        with pytest.raises(MaxTokensReachedException):
            await agent.invoke_async()
        cut = await sample_of(rollout)
        await agent.invoke_async("Go on.")
        whole = await sample_of(rollout)
    assert runs == []
    for sample in (cut, whole):
        turn = sample.messages[1]
        assert turn["content"] == [
            {"text": "Let me see."},
            {"toolUse": {"toolUseId": "call_0", "name": "f", "input": {"q": 1}}},
            {"toolUse": {"toolUseId": "call_1", "name": "f", "input": CUT}},
        ]
        assert turn["metadata"]["custom"] == {"truncated": True}
        assert sample.trajectory_messages is not None
        kept = sample.trajectory_messages[1]
        assert kept["tool_calls"][1]["function"]["arguments"] == CUT
        assert (kept["truncated"], kept["finish_reason"]) == (True, "length")
    # The unanswered calls cannot be sent again: no chat template would take them.
    assert policy.requests[1].messages[1:] == [
        {"role": "assistant", "content": "Let me see."},
        {"role": "user", "content": "Go on."},
    ]
    assert [len(message["content"]) for message in agent.messages] == [1, 1, 1, 1]


async def test_b37_text_cut_by_length(policy: ScriptedPolicy, rollout: RolloutContext) -> None:
    """B37: the partial text is kept, and Strands says that the limit was reached."""
    policy.add(reply("Two and two", finish_reason="length"))
    with rollout:
        with pytest.raises(MaxTokensReachedException):
            await build().invoke_async()
        sample = await sample_of(rollout)
    assert sample.messages[-1]["content"] == [{"text": "Two and two"}]


@pytest.mark.parametrize("arguments", [CUT, "nonsense", "[1]", "null", '"{\\"q\\": 1}"'])
@pytest.mark.parametrize("is_sub_agent", [False, True])
async def test_b37_arguments_that_are_no_object(
    policy: ScriptedPolicy, rollout: RolloutContext, arguments: str, is_sub_agent: bool
) -> None:
    """B37: the tool does not run; the policy is told, and the record has the text that came."""
    runs: list[Any] = []
    policy.add(reply(tool_calls=[ToolCall("f", arguments)]), "Sorry.")
    with rollout:
        agent: Agent = build([recording_tool("f", runs)])
        if is_sub_agent:
            agent = Agent(
                model=agent.model, tools=[recording_tool("f", runs)], callback_handler=None
            )
        await agent.invoke_async("Go.")
    assert runs == []
    told = policy.requests[1].messages
    assert told[-2]["tool_calls"][0]["function"]["arguments"] == arguments
    assert told[-1]["role"] == "tool"
    assert told[-1]["content"].startswith("Error")
    [result] = agent.messages[-2]["content"]
    assert result.get("toolResult", {}).get("status") == "error"


async def test_b37_cut_arguments_of_a_finished_turn(
    policy: ScriptedPolicy, rollout: RolloutContext
) -> None:
    """B37: cut arguments are flagged too when the endpoint says `tool_calls`."""
    policy.add(reply(tool_calls=[ToolCall("f", CUT)], finish_reason="tool_calls"), "Sorry.")
    with rollout:
        await build([recording_tool("f", [])]).invoke_async()
        sample = await sample_of(rollout)
    assert sample.messages[1]["content"][0]["toolUse"]["input"] == CUT
    assert sample.trajectory_messages is not None
    assert sample.trajectory_messages[1]["truncated"] is True


async def test_b40_empty_answer_is_an_answer(
    policy: ScriptedPolicy, rollout: RolloutContext
) -> None:
    """B40: a policy that says nothing has answered."""
    policy.add(reply(""))
    with rollout:
        result = await build().invoke_async()
        sample = await sample_of(rollout)
    assert result.stop_reason == "end_turn"
    assert sample.messages[-1]["role"] == "assistant"
    assert sample.trajectory_messages is not None
    assert sample.trajectory_messages[-1]["content"] == ""


async def test_refusal_is_what_the_policy_said(
    policy: ScriptedPolicy, rollout: RolloutContext
) -> None:
    """A refusal is text for Strands, and its own field on the wire and in the archive."""
    policy.add(stream_reply(chunk(refusal="I will not."), chunk(finish_reason="stop")), "ok")
    with rollout:
        agent = build()
        await agent.invoke_async()
        await agent.invoke_async("please")
        sample = await sample_of(rollout)
    assert sample.messages[1]["content"] == [{"text": "I will not."}]
    assert policy.requests[1].messages[1]["refusal"] == "I will not."


async def test_endpoint_facts_reach_the_archive(
    policy: ScriptedPolicy, rollout: RolloutContext
) -> None:
    """Usage, tokens and logprobs are kept per turn where given, and absent where not."""
    usage = {
        "prompt_tokens": 7,
        "completion_tokens": 2,
        "total_tokens": 9,
        "prompt_tokens_details": {"cached_tokens": 3},
    }
    logprobs = [{"token": "4", "logprob": -0.5}, {"token": ".", "logprob": -0.25}]
    policy.add(
        reply("4.", usage=usage, prompt_token_ids=[1, 2], token_ids=[3, 4], logprobs=logprobs),
        "5",
    )
    with rollout:
        agent = build()
        result = await agent.invoke_async()
        await agent.invoke_async("more")
        sample = await sample_of(rollout)
    assert result.metrics.accumulated_usage == {
        "inputTokens": 7,
        "outputTokens": 2,
        "totalTokens": 9,
        "cacheReadInputTokens": 3,
    }
    assert sample.trajectory_messages is not None
    first, last = (sample.trajectory_messages[place] for place in (1, -1))
    assert first["usage"] == usage
    assert (first["prompt_token_ids"], first["token_ids"]) == ([1, 2], [3, 4])
    assert first["logprobs"] == [-0.5, -0.25]
    assert first["model"] == "osmosis-rollout"
    assert "created_at" in first
    assert not {"usage", "token_ids", "prompt_token_ids", "logprobs"} & last.keys()
    sent = policy.requests[1].messages[1]
    assert sent == {"role": "assistant", "content": "4."}


async def test_deadline_in_the_middle_of_a_stream(
    policy: ScriptedPolicy, rollout: RolloutContext
) -> None:
    """A deadline closes the connection to the policy, and the half answer is no answer."""
    gate = Gate()
    policy.add(reply(["half", " an answer"]).insert(2, gate))
    with rollout:
        agent = build()
        task = asyncio.create_task(agent.invoke_async())
        await asyncio.to_thread(gate.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        outcome = await asyncio.to_thread(policy.requests[0].wait)
        sample = await sample_of(rollout)
    assert outcome == "disconnected"
    assert [message["role"] for message in sample.messages] == ["user"]


async def test_cancelled_agent_says_nothing_for_the_policy(
    policy: ScriptedPolicy, rollout: RolloutContext
) -> None:
    """`agent.cancel()` closes the connection; Strands' notice of it is not in the sample."""
    gate = Gate()
    policy.add(reply(["half", " an", " answer"]).insert(2, gate), "4")
    with rollout:
        agent = build()
        task = asyncio.create_task(agent.invoke_async())
        await asyncio.to_thread(gate.wait)
        await asyncio.to_thread(agent.cancel)
        gate.open()
        result = await task
        stopped = await sample_of(rollout)
        await agent.invoke_async("once more")
        sample = await sample_of(rollout)
    assert result.stop_reason == "cancelled"
    assert [message["role"] for message in stopped.messages] == ["user"]
    assert [message["role"] for message in sample.messages] == ["user", "user", "assistant"]
    assert [message["role"] for message in policy.requests[1].messages] == ["user", "user"]
