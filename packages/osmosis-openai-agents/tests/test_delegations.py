"""Agents inside the tools of agents, and agents that take turns, in the archive."""

import asyncio
from typing import Any

import pytest
from agents import (
    Agent,
    FunctionTool,
    RunConfig,
    Runner,
    SQLiteSession,
    ToolGuardrailFunctionOutput,
    function_tool,
    handoff,
    tool_input_guardrail,
)

from osmosis_ai.rollout import MessageDict, RolloutContext
from osmosis_ai.rollout.integrations.agents.openai_agents import (
    OsmosisAgent,
    OsmosisMemorySession,
    OsmosisRolloutModel,
)
from osmosis_ai.rollout.policy import PolicyError
from osmosis_ai.rollout.testing import (
    Gate,
    PolicyRequest,
    Reply,
    ScriptedPolicy,
    ToolCall,
    error_reply,
    reply,
)

QUESTION: list[Any] = [{"role": "user", "content": "2+2?"}]


def build(name: str = "main", **kwargs: Any) -> OsmosisAgent[Any]:
    return OsmosisAgent(name=name, model=OsmosisRolloutModel(), **kwargs)


async def run(agent: Agent[Any], **kwargs: Any) -> Any:
    return await Runner.run(agent, QUESTION, session=OsmosisMemorySession(), **kwargs)


async def archive_of(rollout: RolloutContext) -> list[MessageDict]:
    sample = await rollout.get_sample()
    assert sample is not None
    assert sample.trajectory_messages is not None
    return [dict(message) for message in sample.trajectory_messages]


def subagents(messages: list[MessageDict]) -> list[list[dict[str, Any]]]:
    """The conversations behind each result."""
    return [message.get("subagents", []) for message in messages if message["role"] == "tool"]


def texts(run: dict[str, Any]) -> list[Any]:
    return [message.get("content") for message in run["messages"]]


def delegating(*names: str) -> Any:
    """A policy that asks the tools of these names, one below the other, two of them at once."""
    below = dict(zip(("2+2?", *names), names, strict=False))

    def respond(request: PolicyRequest) -> Reply:
        asked = request.messages[-1]["content"]
        if request.messages[-1]["role"] == "tool":
            return reply("done")
        level = asked.split()[0]
        if level not in below:
            return reply(f"re {asked}")
        inputs = [f"{below[level]} {asked} {n}" for n in range(2)]
        # The ids are used again in every turn, as many endpoints do.
        calls = [
            ToolCall(below[level], {"input": one}, f"call_{n}") for n, one in enumerate(inputs)
        ]
        return reply(tool_calls=calls)

    return respond


@pytest.mark.parametrize("kind", ["placeholder", "shared", "plain", "config"])
@pytest.mark.parametrize("streamed", [False, True])
async def test_agents_as_tools_at_once(
    policy: ScriptedPolicy, rollout: RolloutContext, kind: str, streamed: bool
) -> None:
    """Each conversation is on the result that it led to, however the agents share the policy."""
    policy.respond = delegating("helper")
    with rollout:
        main = build()
        models = {"placeholder": OsmosisRolloutModel(), "config": None}
        of_class = Agent if kind in ("plain", "config") else OsmosisAgent
        helper = of_class(name="h", instructions="Help.", model=models.get(kind, main.model))
        main.tools.append(helper.as_tool("helper", "Ask."))
        config = RunConfig(
            model=main.model if kind == "config" else None, tracing_disabled=streamed
        )
        session = OsmosisMemorySession()
        if streamed:
            result = Runner.run_streamed(main, QUESTION, session=session, run_config=config)
            async for _ in result.stream_events():
                pass
        else:
            await Runner.run(main, QUESTION, session=session, run_config=config)
        told = subagents(await archive_of(rollout))
    asked = [f"helper 2+2? {n}" for n in range(2)]
    assert [[texts(one) for one in runs] for runs in told] == [
        [["Help.", one, f"re {one}"]] for one in asked
    ]
    assert [one["agent_name"] for runs in told for one in runs] == ["h", "h"]


async def test_agents_two_deep(policy: ScriptedPolicy, rollout: RolloutContext) -> None:
    """Tools of agents that are tools lead to conversations inside conversations."""
    policy.respond = delegating("middle", "inner")
    with rollout:
        main = build()
        inner = Agent(name="inner", model=main.model)
        middle = Agent(name="middle", model=main.model, tools=[inner.as_tool("inner", "Ask.")])
        main.tools = [middle.as_tool("middle", "Ask.")]
        await run(main)
        told = subagents(await archive_of(rollout))
    assert [[one["agent_name"] for one in runs] for runs in told] == [["middle"]] * 2
    for number, [middle_run] in enumerate(told):
        below = subagents(middle_run["messages"])
        asked = [f"inner middle 2+2? {number} {n}" for n in range(2)]
        assert [[texts(one) for one in runs] for runs in below] == [
            [[one, f"re {one}"]] for one in asked
        ]
        assert middle_run["messages"][0]["tool_definitions"][0]["function"]["name"] == "inner"


async def test_runs_of_one_call(policy: ScriptedPolicy, rollout: RolloutContext) -> None:
    """The same question at once, and a conversation that goes on; from a thread as well."""
    with rollout:
        main = build()
        helper = Agent(name="helper", model=main.model)

        @function_tool
        async def ask(text: str) -> str:
            """Ask."""
            await asyncio.gather(*(Runner.run(helper, text) for _ in range(2)))
            first = await asyncio.to_thread(run_sync, helper)
            more: list[Any] = [*first.to_input_list(), {"role": "user", "content": "b"}]
            return str((await Runner.run(helper, more)).final_output)

        def run_sync(agent: Agent[Any]) -> Any:
            # The SDK makes a loop for the thread and leaves it open.
            loop = asyncio.new_event_loop()
            asyncio.set_event_loop(loop)
            try:
                return Runner.run_sync(agent, "a")
            finally:
                asyncio.set_event_loop(None)
                loop.close()

        main.tools = [ask]
        both = Gate()
        same = reply("same").insert(0, both)
        policy.add(reply(tool_calls=[ToolCall("ask", {"text": "q"})]), same, same, "A", "B", "4")
        task = asyncio.create_task(run(main))
        await asyncio.to_thread(policy.wait_for_requests, 3)
        both.open()
        await task
        [told] = subagents(await archive_of(rollout))
    assert [texts(one) for one in told] == [["q", "same"], ["q", "same"], ["a", "A", "b", "B"]]


async def test_a_turn_is_told_once(policy: ScriptedPolicy, rollout: RolloutContext) -> None:
    """A helper that remembers its last conversation reads it again; its tokens are counted once."""
    call = reply(tool_calls=[ToolCall("helper", {"input": "again"}, "call_0")], token_ids=[1])
    policy.add(call, reply("A", token_ids=[2]), call, reply("B", token_ids=[3]), "4")
    with rollout:
        main = build()
        helper = Agent(name="helper", instructions="Help.", model=main.model)
        session = SQLiteSession("helper")
        main.tools = [helper.as_tool("helper", "Ask.", session=session)]
        await run(main)
        session.close()
        [[first], [second]] = subagents(await archive_of(rollout))
    assert texts(first) == ["Help.", "again", "A"]
    assert texts(second) == ["Help.", "again", "A", "again", "B"]
    assert [one["token_ids"] for one in second["messages"] if "token_ids" in one] == [[3]]
    assert first["messages"][-1]["token_ids"] == [2]


async def test_failures_that_the_policy_is_told(
    policy: ScriptedPolicy, rollout: RolloutContext
) -> None:
    """What was said before a run failed is kept, and what was asked where nothing was said."""

    @function_tool
    def look() -> str:
        """Look."""
        return "nothing"

    again = reply("Looking.", tool_calls=[ToolCall("look")])
    with rollout:
        main = build()
        helper = Agent(name="helper", instructions="Help.", model=main.model, tools=[look])
        main.tools = [helper.as_tool("helper", "Ask.", max_turns=2)]
        call = reply(tool_calls=[ToolCall("helper", {"input": "q"})])
        policy.add(call, again, again, call, error_reply(400, "no"), "4")
        await run(main)
        [[endless], [refused]] = subagents(await archive_of(rollout))
    assert texts(endless) == ["Help.", "q", "Looking.", "nothing", "Looking."]
    assert texts(refused) == ["Help.", "q"]
    assert refused["messages"][0]["tool_definitions"][0]["function"]["name"] == "look"


@pytest.mark.parametrize("how", ["refused", "outage", "cancelled"])
async def test_a_call_without_a_result(
    policy: ScriptedPolicy, rollout: RolloutContext, how: str
) -> None:
    """What went on inside a tool call that has no result is in the partial transcript."""

    @function_tool
    def look() -> str:
        """Look."""
        return "nothing"

    ends = {"refused": error_reply(400, "no"), "outage": error_reply(500, "burning")}
    with rollout:
        main = build()
        helper = Agent(name="helper", model=main.model, tools=[look])
        tool = helper.as_tool("helper", "Ask.", failure_error_function=None)
        main.tools = [tool]
        policy.add(
            reply(tool_calls=[ToolCall("helper", {"input": "q"})]),
            reply("Looking.", tool_calls=[ToolCall("look")]),
            ends.get(how, reply("never").insert(0, Gate())),
        )
        task = asyncio.create_task(run(main))
        await asyncio.to_thread(policy.wait_for_requests, 3)
        if how == "cancelled":
            task.cancel()
        with pytest.raises((Exception, asyncio.CancelledError)):
            await task
        if how == "outage":
            with pytest.raises(PolicyError):
                await rollout.get_sample()
        messages = await archive_of(rollout)
    assert messages[-2]["role"] == "assistant"
    assert "content" not in messages[-1]
    assert messages[-1]["tool_call_id"] == messages[-2]["tool_calls"][0]["id"]
    [[told]] = subagents(messages)
    assert texts(told)[:3] == ["q", "Looking.", "nothing"]


async def test_an_agent_that_reads_its_callers_conversation(
    policy: ScriptedPolicy, rollout: RolloutContext
) -> None:
    """Turns of others are what it was asked with: no words, tokens or instructions of its own."""
    with rollout:
        main = build(instructions="Main.")
        helper = Agent(name="helper", instructions="Help.", model=main.model)
        session = OsmosisMemorySession()

        @function_tool
        async def ask() -> str:
            """Ask."""
            read: list[Any] = [*await session.get_items(), {"role": "user", "content": "And?"}]
            return str((await Runner.run(helper, read)).final_output)

        main.tools = [ask]
        call = reply("First.", tool_calls=[ToolCall("ask")], token_ids=[1])
        policy.add(call, "A", reply("Second.", tool_calls=[ToolCall("ask")]), "B", "4")
        await Runner.run(main, QUESTION, session=session)
        [_, [second]] = subagents(await archive_of(rollout))
    assert texts(second)[:3] == ["Help.", "2+2?", "First."]
    assert texts(second)[-2:] == ["And?", "B"]
    assert "token_ids" not in str(second)
    assert "subagents" not in str(second)


async def test_agents_that_take_turns_are_named(
    policy: ScriptedPolicy, rollout: RolloutContext
) -> None:
    """A handoff stays one transcript, with the agent of each turn and of its instructions."""
    policy.add("Hi.", reply(tool_calls=[ToolCall("transfer_to_solver")]), "4")
    with rollout:
        solver = build(name="solver", instructions="Solve it.")
        main = build(instructions="Hand it over.", handoffs=[solver])
        session = OsmosisMemorySession()
        await Runner.run(main, "Hi!", session=session)
        assert not any("agent_name" in one for one in await archive_of(rollout))
        await Runner.run(main, "2+2?", session=session)
        messages = await archive_of(rollout)
    assert [(one["role"], one.get("agent_name")) for one in messages] == [
        ("system", "main"),
        ("user", None),
        ("assistant", "main"),
        ("user", None),
        ("assistant", "main"),
        ("tool", None),
        ("system", "solver"),
        ("assistant", "solver"),
    ]


async def test_a_handoff_inside_a_tool(policy: ScriptedPolicy, rollout: RolloutContext) -> None:
    """One conversation as well, whatever its filter hides from the next agent."""
    policy.add(
        reply(tool_calls=[ToolCall("triage", {"input": "q"})]),
        reply("Over.", tool_calls=[ToolCall("transfer_to_solver")]),
        "A",
        "4",
    )
    with rollout:
        main = build()
        solver = Agent(name="solver", model=main.model)
        triage = Agent(name="triage", model=main.model, handoffs=[handoff(solver)])
        main.tools = [triage.as_tool("triage", "Ask.")]
        await run(main)
        [[told]] = subagents(await archive_of(rollout))
    assert told["agent_name"] == "triage"
    named = [(one.get("agent_name"), one["content"]) for one in told["messages"]]
    assert [name for name, _ in named] == [None, "triage", None, "solver"]
    assert named[-1] == ("solver", "A")


async def test_tools_of_the_user_stay_theirs(policy: ScriptedPolicy) -> None:
    """A tool for all rollouts keeps its guardrails, and each rollout its conversations."""
    seen: list[str] = []

    @tool_input_guardrail
    def watch(data: Any) -> ToolGuardrailFunctionOutput:
        seen.append(data.context.tool_name)
        return ToolGuardrailFunctionOutput.allow()

    async def ask(context: Any, arguments: str) -> str:
        return str((await Runner.run(context.context, "q")).final_output)

    tool = FunctionTool("ask", "Ask.", {"type": "object", "properties": {}}, ask)
    tool.tool_input_guardrails = [watch]

    def respond(request: PolicyRequest) -> Reply:
        first = request.messages[0]["content"]
        if request.messages[-1]["content"] == "2+2?":
            return reply(tool_calls=[ToolCall("ask")])
        return reply(f"{request.headers['authorization']} {first}")

    policy.respond = respond

    async def one(number: int) -> str:
        with RolloutContext(policy.url, f"k{number}", f"r-{number}") as rollout:
            main = build(tools=[tool])
            await run(main, context=Agent(name="helper", model=main.model))
            [[told]] = subagents(await archive_of(rollout))
        return str(texts(told)[-1])

    assert await asyncio.gather(*map(one, range(3))) == [f"Bearer k{n} q" for n in range(3)]
    assert seen == ["ask"] * 3
    assert len(tool.tool_input_guardrails) == 2
