"""What becomes of answers that are broken, cut or odd, through a real agent and Runner."""

import asyncio
from typing import Any

import pytest
from agents import Agent, ModelBehaviorError, ModelSettings, Runner, function_tool
from agents.retry import ModelRetrySettings, RetryDecision

from osmosis_ai.rollout import RolloutContext, RolloutSample
from osmosis_ai.rollout.integrations.agents.openai_agents import (
    OsmosisAgent,
    OsmosisMemorySession,
    OsmosisRolloutModel,
)
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

QUESTION: list[Any] = [{"role": "user", "content": "2+2?"}]

streamed_or_not = pytest.mark.parametrize("streamed", [False, True], ids=["run", "run_streamed"])


def build(tools: list[Any] | None = None, **kwargs: Any) -> OsmosisAgent[Any]:
    return OsmosisAgent(name="a", model=OsmosisRolloutModel(), tools=tools or [], **kwargs)


async def run(
    agent: Agent[Any], session: OsmosisMemorySession, prompt: Any = QUESTION, *, streamed: bool
) -> Any:
    """Run an agent, streamed or not, and return its result."""
    if not streamed:
        return await Runner.run(agent, prompt, session=session)
    result = Runner.run_streamed(agent, prompt, session=session)
    async for _ in result.stream_events():
        pass
    return result


async def sample_of(rollout: RolloutContext) -> RolloutSample:
    sample = await rollout.get_sample()
    assert sample is not None
    return sample


def call_chunk(**fields: Any) -> dict[str, Any]:
    return chunk(tool_calls=[fields])


def recording_tool(name: str, runs: list[Any]) -> Any:
    @function_tool(name_override=name)
    def run(q: int | None = None) -> str:
        """Note what it was called with."""
        runs.append((name, q))
        return str(q)

    return run


FIRST = {"id": "a", "function": {"name": "f", "arguments": '{"q": 1}'}}
SECOND = {"id": "b", "function": {"name": "g", "arguments": '{"q": 2}'}}


@streamed_or_not
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
    policy: ScriptedPolicy, rollout: RolloutContext, chunks: list[Any], streamed: bool
) -> None:
    """B33: both tools run once, each with its own arguments."""
    runs: list[Any] = []
    policy.add(stream_reply(*chunks, chunk(finish_reason="tool_calls")), "done")
    with rollout:
        agent = build([recording_tool("f", runs), recording_tool("g", runs)])
        await run(agent, OsmosisMemorySession(), streamed=streamed)
    assert sorted(runs) == [("f", 1), ("g", 2)]
    told = [(one["tool_call_id"], one["content"]) for one in policy.requests[1].messages[-2:]]
    assert told == [("a", "1"), ("b", "2")]


@streamed_or_not
async def test_b33_what_cannot_be_put_together_fails(
    policy: ScriptedPolicy, rollout: RolloutContext, streamed: bool
) -> None:
    """B33: fragments that could belong to either call run no tool."""
    runs: list[Any] = []
    fragments = [{"function": {"arguments": '{"q"'}}, {"function": {"arguments": "1}"}}]
    policy.add(stream_reply(chunk(tool_calls=fragments), chunk(finish_reason="tool_calls")))
    with rollout:
        agent = build([recording_tool("f", runs)])
        with pytest.raises(PolicyError, match="cannot be put together"):
            await run(agent, OsmosisMemorySession(), streamed=streamed)
    assert runs == []


@streamed_or_not
async def test_call_ids_that_come_again(
    policy: ScriptedPolicy, rollout: RolloutContext, streamed: bool
) -> None:
    """Every call runs, whatever ids the endpoint gives; the policy reads the ids that it gave."""
    runs: list[Any] = []
    twice = [ToolCall("f", {"q": 1}, id="x"), ToolCall("f", {"q": 2}, id="x")]
    policy.add(reply(tool_calls=twice), reply(tool_calls=[ToolCall("f", {"q": 3}, id="x")]), "4")
    with rollout:
        await run(build([recording_tool("f", runs)]), OsmosisMemorySession(), streamed=streamed)
        sample = await sample_of(rollout)
    assert sorted(runs) == [("f", 1), ("f", 2), ("f", 3)]
    ids = [one["call_id"] for one in sample.messages if one.get("type") == "function_call"]
    assert len(set(ids)) == 3
    sent = policy.requests[2].messages
    results = [one for one in sent if one["role"] == "tool"]
    assert [one["tool_call_id"] for one in results] == ["x", "x", "x"]
    assert [one["content"] for one in results] == ["1", "2", "3"]
    assert {call["id"] for one in sent for call in one.get("tool_calls", ())} == {"x"}


BROKEN = {
    "text-then-end": reply("par").cut(2),
    "text-then-quiet-end": stream_reply(chunk(content="par"), done=False),
    "done-without-finish": stream_reply(chunk(content="par")),
    "nothing": stream_reply(done=False),
    "only-comments": stream_reply(Comment(), Comment(), done=False),
    "empty-at-the-limit": stream_reply(chunk(content=None, finish_reason="length")),
    "server-error": error_reply(500, "burning"),
}


@streamed_or_not
@pytest.mark.parametrize("answer", BROKEN.values(), ids=BROKEN)
async def test_b34_half_an_answer_is_none(
    policy: ScriptedPolicy, rollout: RolloutContext, answer: Reply, streamed: bool
) -> None:
    """B34: an answer that was cut is the endpoint's failure; nothing of it enters the sample."""
    policy.add(answer)
    with rollout:
        agent, session = build(), OsmosisMemorySession()
        with pytest.raises(PolicyError) as caught:
            await run(agent, session, streamed=streamed)
        sample = await sample_of(rollout)
    assert caught.value.is_endpoint_failure
    assert sample.messages == QUESTION
    assert sample.trajectory_messages == QUESTION
    assert len(policy.requests) == 1


@streamed_or_not
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
    policy: ScriptedPolicy, rollout: RolloutContext, steps: list[Any], streamed: bool
) -> None:
    """B35: the server's message is raised, although it came with a 200 and a [DONE]."""
    policy.add(stream_reply(*steps))
    with rollout:
        agent, session = build(), OsmosisMemorySession()
        with pytest.raises(PolicyError, match="out of memory"):
            await run(agent, session, streamed=streamed)


CUT = '{"q": "abc'


@streamed_or_not
async def test_b37_arguments_cut_by_length(
    policy: ScriptedPolicy, rollout: RolloutContext, streamed: bool
) -> None:
    """B37: no tool runs, no sentence is made up, and the record has the text that came."""
    runs: list[Any] = []
    calls = [ToolCall("f", {"q": 1}), ToolCall("f", CUT)]
    policy.add(reply("Let me see.", tool_calls=calls, finish_reason="length"))
    with rollout:
        agent, session = build([recording_tool("f", runs)]), OsmosisMemorySession()
        with pytest.raises(ModelBehaviorError, match="max_tokens"):
            await run(agent, session, streamed=streamed)
        sample = await sample_of(rollout)
    assert runs == []
    _, text, whole, cut = sample.messages
    assert text["content"][0]["text"] == "Let me see."
    assert (whole["arguments"], whole["status"]) == ('{"q": 1}', "completed")
    assert (cut["arguments"], cut["status"]) == (CUT, "incomplete")
    assert sample.trajectory_messages is not None
    kept = sample.trajectory_messages[1]
    assert kept["tool_calls"][1]["function"]["arguments"] == CUT
    assert (kept["truncated"], kept["finish_reason"]) == (True, "length")


@streamed_or_not
async def test_b37_text_cut_by_length(
    policy: ScriptedPolicy, rollout: RolloutContext, streamed: bool
) -> None:
    """B37: the partial text is what the agent gives, as in the SDK, and it is marked as cut."""
    policy.add(reply("Two and two", finish_reason="length"))
    with rollout:
        result = await run(build(), OsmosisMemorySession(), streamed=streamed)
        sample = await sample_of(rollout)
    assert result.final_output == "Two and two"
    assert sample.messages[-1]["status"] == "incomplete"
    assert sample.trajectory_messages is not None
    assert sample.trajectory_messages[-1]["finish_reason"] == "length"


@streamed_or_not
@pytest.mark.parametrize("arguments", [CUT, "nonsense", "[1]", "null", '"{\\"q\\": 1}"'])
async def test_b37_arguments_that_are_no_object(
    policy: ScriptedPolicy, rollout: RolloutContext, arguments: str, streamed: bool
) -> None:
    """B37: the tool does not run; the policy is told, and reads the text that it wrote."""
    runs: list[Any] = []
    policy.add(reply(tool_calls=[ToolCall("f", arguments)], finish_reason="tool_calls"), "Sorry.")
    with rollout:
        agent = build([recording_tool("f", runs)])
        await run(agent, OsmosisMemorySession(), streamed=streamed)
        sample = await sample_of(rollout)
    assert runs == []
    told = policy.requests[1].messages
    assert told[-2]["tool_calls"][0]["function"]["arguments"] == arguments
    assert told[-1]["role"] == "tool"
    assert "rror" in told[-1]["content"]
    assert sample.messages[1]["arguments"] == arguments
    assert sample.trajectory_messages is not None
    assert sample.trajectory_messages[1].get("truncated", False) is (arguments == CUT)


@streamed_or_not
@pytest.mark.parametrize(
    "answer",
    [reply(""), stream_reply(chunk(finish_reason="stop")), reply(reasoning="hm")],
    ids=["empty", "missing", "only-reasoning"],
)
async def test_b40_empty_answer_is_an_answer(
    policy: ScriptedPolicy, rollout: RolloutContext, answer: Reply, streamed: bool
) -> None:
    """B40: a policy that says nothing has answered."""
    policy.add(answer, "4")
    with rollout:
        agent, session = build(), OsmosisMemorySession()
        result = await run(agent, session, streamed=streamed)
        sample = await sample_of(rollout)
        await run(agent, session, "And now?", streamed=streamed)
    assert result.final_output == ""
    assert sample.messages[-1]["role"] == "assistant"
    assert sample.messages[-1]["content"][0]["text"] == ""
    assert sample.trajectory_messages is not None
    assert sample.trajectory_messages[-1]["content"] == ""
    assert policy.requests[1].messages[1]["content"] == ""


@streamed_or_not
async def test_refusal_is_what_the_policy_said(
    policy: ScriptedPolicy, rollout: RolloutContext, streamed: bool
) -> None:
    """A refusal is a refusal for the SDK, on the wire and in the archive."""
    policy.add(stream_reply(chunk(refusal="I will not."), chunk(finish_reason="stop")), "ok")
    with rollout:
        agent, session = build(), OsmosisMemorySession()
        # Newer releases raise on it, older ones give an empty answer.
        try:
            await run(agent, session, streamed=streamed)
        except Exception as error:
            assert "refus" in str(error).lower()  # noqa: PT017
        sample = await sample_of(rollout)
    assert sample.messages[1]["content"][0] == {"type": "refusal", "refusal": "I will not."}
    assert sample.trajectory_messages is not None
    assert sample.trajectory_messages[1]["refusal"] == "I will not."


async def test_nothing_is_made_up_for_filtered_content(
    policy: ScriptedPolicy, rollout: RolloutContext
) -> None:
    """B37: the SDK writes a refusal of its own here; the policy said nothing."""
    policy.add(stream_reply(chunk(finish_reason="content_filter")))
    with rollout:
        result = await run(build(), OsmosisMemorySession(), streamed=False)
        sample = await sample_of(rollout)
    assert result.final_output == ""
    assert "withheld" not in str(sample.messages)


@streamed_or_not
async def test_endpoint_facts_reach_the_archive(
    policy: ScriptedPolicy, rollout: RolloutContext, streamed: bool
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
        agent, session = build(), OsmosisMemorySession()
        result = await run(agent, session, streamed=streamed)
        more = await run(agent, session, "more", streamed=streamed)
        sample = await sample_of(rollout)
    spent = result.context_wrapper.usage
    assert (spent.requests, spent.input_tokens, spent.output_tokens) == (1, 7, 2)
    assert (spent.total_tokens, spent.input_tokens_details.cached_tokens) == (9, 3)
    assert more.context_wrapper.usage.total_tokens == 0
    assert sample.trajectory_messages is not None
    first, last = (sample.trajectory_messages[place] for place in (1, -1))
    assert first["usage"] == usage
    assert (first["prompt_token_ids"], first["token_ids"]) == ([1, 2], [3, 4])
    assert first["logprobs"] == [-0.5, -0.25]
    assert first["model"] == "osmosis-rollout"
    assert "created_at" in first
    assert not {"usage", "token_ids", "prompt_token_ids", "logprobs"} & last.keys()
    assert policy.requests[1].messages[1] == {"role": "assistant", "content": "4."}


async def test_usage_that_makes_no_sense_is_kept_but_not_added_up(
    policy: ScriptedPolicy, rollout: RolloutContext
) -> None:
    """Odd figures of an endpoint fail nothing."""
    usage = {"prompt_tokens": "7", "completion_tokens": None, "prompt_tokens_details": None}
    for streamed in (False, True):
        policy.add(reply("4.", usage=usage))
        with RolloutContext(policy.url) as own:
            result = await run(build(), OsmosisMemorySession(), streamed=streamed)
            sample = await sample_of(own)
        assert result.context_wrapper.usage.input_tokens == 0
        assert sample.trajectory_messages is not None
        assert sample.trajectory_messages[-1]["usage"] == usage


async def test_text_and_reasoning_arrive_as_they_come(
    policy: ScriptedPolicy, rollout: RolloutContext
) -> None:
    """A streamed run passes pieces on before the answer is whole."""
    gate = Gate()
    policy.add(reply(["4", "2"], reasoning=["h", "m"]).insert(4, gate))
    seen: list[tuple[str, str]] = []
    with rollout:
        result = Runner.run_streamed(build(), "?", session=OsmosisMemorySession())
        async for event in result.stream_events():
            if event.type == "raw_response_event" and event.data.type.endswith("text.delta"):
                seen.append((event.data.type, event.data.delta))  # type: ignore[union-attr]
                if len(seen) == 3:
                    gate.open()
    assert [text for _, text in seen] == ["h", "m", "4", "2"]
    assert seen[0][0].startswith("response.reasoning")
    assert seen[-1][0] == "response.output_text.delta"
    assert result.final_output == "42"


@streamed_or_not
async def test_cancelled_in_the_middle_of_a_stream(
    policy: ScriptedPolicy, rollout: RolloutContext, streamed: bool
) -> None:
    """A cancelled run closes the connection to the policy, and half an answer is no answer."""
    gate = Gate()
    policy.add(reply(["half", " an answer"]).insert(2, gate))
    with rollout:
        task = asyncio.create_task(run(build(), OsmosisMemorySession(), streamed=streamed))
        await asyncio.to_thread(gate.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        outcome = await asyncio.to_thread(policy.requests[0].wait)
        sample = await sample_of(rollout)
    assert outcome == "disconnected"
    assert sample.messages == QUESTION


async def test_result_that_is_cancelled(policy: ScriptedPolicy, rollout: RolloutContext) -> None:
    """`RunResultStreaming.cancel()` closes the connection too."""
    gate = Gate()
    policy.add(reply(["half", " an answer"]).insert(2, gate))
    with rollout:
        result = Runner.run_streamed(build(), QUESTION, session=OsmosisMemorySession())
        async for event in result.stream_events():
            if event.type == "raw_response_event" and event.data.type.endswith("text.delta"):
                result.cancel()
        outcome = await asyncio.to_thread(policy.requests[0].wait)
    assert outcome == "disconnected"


@streamed_or_not
async def test_the_framework_never_calls_again(
    policy: ScriptedPolicy, rollout: RolloutContext, streamed: bool
) -> None:
    """One call is one sample of the policy, even if the user's settings ask for retries."""
    policy.add(error_reply(500, "burning"), "4")
    again = RetryDecision(retry=True, delay=0)
    always = ModelRetrySettings(max_retries=3, policy=lambda _: again)
    with rollout:
        agent = build(model_settings=ModelSettings(retry=always))
        session = OsmosisMemorySession()
        with pytest.raises(PolicyError, match="burning"):
            await run(agent, session, streamed=streamed)
    assert len(policy.requests) == 1
