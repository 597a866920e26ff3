"""What the policy's calls told reaches the archived messages, each on the turn of its call."""

from collections.abc import Sequence
from typing import Any

import pytest

from osmosis_ai.rollout import (
    AgentWorkflowContext,
    ExecutionRequest,
    ExecutionResult,
    RolloutContext,
    RolloutSample,
    SampleSource,
    get_rollout_context,
)
from osmosis_ai.rollout.policy import PolicyClient
from osmosis_ai.rollout.testing import Reply, ScriptedPolicy, ToolCall, reply

from .conftest import MakeBackend, Run

USER = {"role": "user", "content": "2+2?"}
MORE = {"role": "user", "content": "sure?"}


def said(text: str, *ids: int, **options: Any) -> Reply:
    """Answer with a text and its tokens."""
    return reply(text, token_ids=ids, prompt_token_ids=[1, *ids], one_chunk=True, **options)


def plain(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def token_ids(result: ExecutionResult) -> list[list[int] | None]:
    """Return the token ids of the archived assistant turns."""
    assert result.sample is not None, result.err_message
    messages = result.sample.trajectory_messages or []
    return [m.get("token_ids") for m in messages if m["role"] == "assistant"]


@pytest.fixture
def run(make_backend: MakeBackend) -> Any:
    """Return what runs a workflow on a policy that gives these replies."""

    async def run(
        workflow: Run, *replies: Reply, prompt: Sequence[dict[str, Any]] = (USER,)
    ) -> ExecutionResult:
        request = ExecutionRequest(id="r-1", prompt=list(prompt))
        with ScriptedPolicy(*replies) as policy, RolloutContext(policy.url):
            return await make_backend(workflow).run_workflow(request)

    return run


async def test_plain_messages_get_the_telemetry_of_their_calls(run: Any) -> None:
    """The turns say nothing of their making, and repeat each other; each gets its own call's."""

    async def work(ctx: AgentWorkflowContext[Any]) -> list[dict[str, Any]]:
        messages = [*ctx.prompt]
        for _ in range(3):
            answer = await PolicyClient().complete(messages)
            messages += [answer.message, MORE]
        return messages

    usage = {"prompt_tokens": 3}
    result = await run(work, said("4", 7), said("4", 8, usage=usage), said("4", 9, model="m"))
    assert token_ids(result) == [[7], [8], [9]]
    first, second, third = result.sample.trajectory_messages[1::2]
    assert first["finish_reason"] == "stop"
    assert first["prompt_token_ids"] == [1, 7]
    assert "usage" not in first
    assert second["usage"] == usage
    assert third["model"] == "m"
    # Graders and trainers get what the workflow returned.
    assert result.sample.messages[1] == plain("4")


async def test_the_tools_that_were_offered_are_on_the_first_message(run: Any) -> None:
    """Each once, of the calls whose turns are there; what a workflow says itself wins."""
    add, search = ({"type": "function", "function": {"name": name}} for name in ("add", "search"))

    async def work(ctx: AgentWorkflowContext[Any]) -> list[dict[str, Any]]:
        first = await PolicyClient().complete(ctx.prompt, tools=[add])
        messages = [*ctx.prompt, first.message, MORE]
        await PolicyClient().complete(messages, tools=[{"type": "function", "function": {}}])
        second = await PolicyClient().complete(messages, tools=[dict(add), search])
        return [*messages, second.message]

    async def say(ctx: AgentWorkflowContext[Any]) -> list[dict[str, Any]]:
        answer = await PolicyClient().complete(ctx.prompt, tools=[add])
        return [{**ctx.prompt[0], "tool_definitions": [search]}, answer.message]

    result = await run(work, said("4", 1), said("5", 2), said("6", 3))
    assert result.sample.trajectory_messages[0] == {**USER, "tool_definitions": [add, search]}
    assert result.sample.messages[0] == USER
    result = await run(say, said("4", 1))
    assert result.sample.trajectory_messages[0]["tool_definitions"] == [search]


async def test_a_turn_of_the_workflows_own_gets_nothing(run: Any) -> None:
    """Neither a text that no call produced, nor one that the prompt brought along."""

    async def work(ctx: AgentWorkflowContext[Any]) -> list[dict[str, Any]]:
        answer = await PolicyClient().complete(ctx.prompt)
        assert answer.text == "old"
        return [*ctx.prompt, plain("mine"), MORE, plain("new")]

    prompt = [USER, plain("old"), MORE]
    result = await run(work, said("old", 7), prompt=prompt)
    assert token_ids(result) == [None, None, None]


async def test_of_several_samples_the_chosen_one(run: Any) -> None:
    """A turn that is one of several samples gets that one's tokens, if it can only be that one."""

    async def work(ctx: AgentWorkflowContext[Any]) -> list[dict[str, Any]]:
        client = PolicyClient()
        samples = [await client.complete(ctx.prompt) for _ in range(3)]
        again = await client.complete([*ctx.prompt, samples[1].message, MORE])
        return [*ctx.prompt, samples[1].message, MORE, again.message]

    result = await run(work, said("3", 7), said("4", 8), said("5", 9), said("yes", 10))
    assert token_ids(result) == [[8], [10]]
    result = await run(work, said("3", 7), said("4", 8), said("4", 9), said("yes", 10))
    assert token_ids(result) == [None, [10]]


async def test_a_rewritten_history_keeps_what_is_certain(run: Any) -> None:
    """A turn at another place is its call's only if nothing else said the same."""

    async def work(ctx: AgentWorkflowContext[Any]) -> list[dict[str, Any]]:
        client = PolicyClient()
        for _ in range(3):
            await client.complete(ctx.prompt)
        summary = {"role": "user", "content": "in short"}
        return [*ctx.prompt, summary, plain("3"), MORE, plain("4"), MORE, plain("4")]

    result = await run(work, said("3", 7), said("4", 8), said("4", 9))
    assert token_ids(result) == [[7], None, None]


async def test_what_a_turn_knows_of_its_making_wins(run: Any) -> None:
    """An annotated turn gets what it lacks; one that tells of another call gets nothing."""

    async def work(ctx: AgentWorkflowContext[Any]) -> list[dict[str, Any]]:
        first = await PolicyClient().complete(ctx.prompt)
        messages = [*ctx.prompt, first.annotated, MORE]
        second = await PolicyClient().complete(messages)
        return [*messages, {**second.message, "token_ids": [99]}]

    result = await run(work, said("4", 7), said("yes", 8))
    first, second = result.sample.trajectory_messages[1::2]
    assert first["token_ids"] == [7]
    assert first["finish_reason"] == "stop"
    assert second["token_ids"] == [99]
    assert "finish_reason" not in second


async def test_respelled_turns_are_found(run: Any) -> None:
    """Content in parts, null content and arguments printed anew are the same turn."""
    call = ToolCall("add", '{"b": 2, "a": 1}', "call_0")

    async def work(ctx: AgentWorkflowContext[Any]) -> list[dict[str, Any]]:
        first = await PolicyClient().complete(ctx.prompt)
        function = {"name": "add", "arguments": {"a": 1, "b": 2}}
        turn = {"role": "assistant", "tool_calls": [{"id": "call_0", "function": function}]}
        tool = {"role": "tool", "tool_call_id": "call_0", "content": "3"}
        second = await PolicyClient().complete([*ctx.prompt, first.message, tool])
        parts = [{"type": "text", "text": second.text}]
        system = {"role": "system", "content": "instructions"}
        return [system, *ctx.prompt, turn, tool, {"role": "assistant", "content": parts}]

    replies = reply(tool_calls=[call], token_ids=[7], one_chunk=True), said("3", 8)
    result = await run(work, *replies)
    assert token_ids(result) == [[7], [8]]


async def test_b37_a_cut_call_says_so(run: Any) -> None:
    """The raw arguments stay, and the turn tells that the length limit cut them."""

    async def work(ctx: AgentWorkflowContext[Any]) -> list[dict[str, Any]]:
        answer = await PolicyClient().complete(ctx.prompt)
        return [*ctx.prompt, answer.message]

    cut = reply(tool_calls=[ToolCall("search", '{"q": "abc', "call_0")], finish_reason="length")
    result = await run(work, cut)
    turn = result.sample.trajectory_messages[-1]
    assert turn["tool_calls"][0]["function"]["arguments"] == '{"q": "abc'
    assert (turn["finish_reason"], turn["truncated"]) == ("length", True)


async def test_a_failed_workflows_partial_transcript_has_it_too(run: Any) -> None:
    """What the source tells after a failure is annotated like every sample."""

    class Held(SampleSource):
        def __init__(self) -> None:
            self.messages = [USER]

        async def get_sample(self) -> RolloutSample:
            return RolloutSample(messages=self.messages)

    async def work(ctx: AgentWorkflowContext[Any]) -> None:
        source = Held()
        context = get_rollout_context()
        assert context is not None
        context.set_sample_source(source)
        answer = await PolicyClient().complete(source.messages)
        source.messages.append(answer.message)
        raise ZeroDivisionError

    assert token_ids(await run(work, said("4", 7))) == [[7]]


async def test_calls_to_others_are_not_the_policys(run: Any) -> None:
    """A client with a URL of its own calls some other model: its telemetry is not the policy's."""

    async def work(ctx: AgentWorkflowContext[Any]) -> list[dict[str, Any]]:
        with ScriptedPolicy(said("4", 7)) as judge:
            answer = await PolicyClient(judge.url).complete(ctx.prompt)
        return [*ctx.prompt, answer.message]

    assert token_ids(await run(work)) == [None]


async def test_odd_messages_cost_nothing_but_the_telemetry(run: Any) -> None:
    """Values that JSON cannot hold do not disturb the match, nor the sample."""

    async def work(ctx: AgentWorkflowContext[Any]) -> list[dict[str, Any]]:
        answer = await PolicyClient().complete(ctx.prompt)
        loop: list[Any] = []
        loop.append(loop)
        odd = [{"role": ["x"], "content": loop}, {"role": "assistant", "tool_calls": [1, loop]}]
        return [*ctx.prompt, answer.message, *odd, {"role": "assistant", "content": {"a": b"x"}}]

    assert token_ids(await run(work, said("4", 7))) == [[7], None, None]


async def test_long_conversations(run: Any) -> None:
    """Thousands of messages are looked at off the loop, to the same end."""

    async def work(ctx: AgentWorkflowContext[Any]) -> list[dict[str, Any]]:
        messages = [*ctx.prompt, *([plain("4"), MORE] * 1000)]
        answer = await PolicyClient().complete(messages)
        return [*messages, answer.message]

    assert token_ids(await run(work, said("4", 7))) == [*[None] * 1000, [7]]
