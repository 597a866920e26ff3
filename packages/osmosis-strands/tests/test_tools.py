"""Tools, hooks, sub-agents and structured output behave as in Strands."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import StdioServerParameters, stdio_client
from pydantic import BaseModel
from strands import Agent, tool
from strands.hooks import BeforeToolCallEvent, HookProvider, HookRegistry
from strands.tools.mcp import MCPClient
from strands.types.exceptions import EventLoopException

from osmosis_ai.rollout import RolloutContext, RolloutSample
from osmosis_ai.rollout.integrations.agents.strands import OsmosisRolloutModel, OsmosisStrandsAgent
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

QUESTION = [{"role": "user", "content": "2+2?"}]

MCP_SERVER = '''
try:
    from mcp.server import MCPServer as Server
except ImportError:
    from mcp.server.fastmcp import FastMCP as Server

server = Server("sums")

@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b

server.run("stdio")
'''


def build(tools: list[Any], **kwargs: Any) -> OsmosisStrandsAgent:
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


def results(sample: RolloutSample) -> list[dict[str, Any]]:
    """All tool results of a sample, in order."""
    blocks = [block for message in sample.messages for block in message["content"]]
    return [block["toolResult"] for block in blocks if "toolResult" in block]


@tool
def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@tool
async def multiply(a: int, b: int) -> str:
    """Multiply two numbers, taking its time."""
    await asyncio.sleep(0)
    return str(a * b)


@tool
def fail(reason: str) -> str:
    """Fail."""
    raise ValueError(reason)


async def test_parallel_sync_and_async_tools(
    policy: ScriptedPolicy, rollout: RolloutContext
) -> None:
    """Both kinds run in one turn, and the policy reads both results, in the order of its calls."""
    calls = [ToolCall("add", {"a": 2, "b": 2}), ToolCall("multiply", {"a": 3, "b": 3})]
    policy.add(reply(tool_calls=calls, interleaved=True), "4 and 9")
    with rollout:
        result = await build([add, multiply]).invoke_async()
        sample = await sample_of(rollout)
    assert result.stop_reason == "end_turn"
    first, second = policy.requests
    assert [one["function"]["name"] for one in first.body["tools"]] == ["add", "multiply"]
    assert first.body["tools"][0]["function"]["parameters"]["required"] == ["a", "b"]
    assert second.messages[-2:] == [
        {"role": "tool", "tool_call_id": "call_0", "content": "4"},
        {"role": "tool", "tool_call_id": "call_1", "content": "9"},
    ]
    assert [message["role"] for message in sample.messages] == [
        "user",
        "assistant",
        "user",
        "assistant",
    ]


async def test_tool_errors_are_told_to_the_policy(
    policy: ScriptedPolicy, rollout: RolloutContext
) -> None:
    """A tool that raises, and a tool that does not exist, are results of a turn, not its end."""
    calls = [ToolCall("fail", {"reason": "no luck"}), ToolCall("search", {"q": "x"})]
    policy.add(reply(tool_calls=calls), "I see.")
    with rollout:
        await build([fail]).invoke_async()
        sample = await sample_of(rollout)
    failed, unknown = results(sample)
    assert (failed["status"], failed["content"]) == ("error", [{"text": "Error: no luck"}])
    assert (unknown["status"], unknown["content"]) == (
        "error",
        [{"text": "Unknown tool: search"}],
    )
    assert [message["content"] for message in policy.requests[1].messages[-2:]] == [
        "Error: no luck",
        "Error: Unknown tool: search",
    ]
    assert sample.trajectory_messages is not None
    assert [message.get("status") for message in sample.trajectory_messages[-3:]] == [
        "error",
        "error",
        None,
    ]


async def test_policy_reads_its_own_words_again(
    policy: ScriptedPolicy, rollout: RolloutContext
) -> None:
    """Strands renames odd tools, re-prints arguments and fills blanks; the wire does not."""
    arguments = '{"q":1,  "unit": "\\u00e9"}'
    policy.add(
        reply("", reasoning="hm", tool_calls=[ToolCall("no such tool!", arguments, "c-1")]), "", "4"
    )
    with rollout:
        agent = build([add])
        await agent.invoke_async()
        await agent.invoke_async("and now?")
    call = {
        "id": "c-1",
        "type": "function",
        "function": {"name": "no such tool!", "arguments": arguments},
    }
    said = [one for one in policy.requests[2].messages if one["role"] == "assistant"]
    assert said[0]["tool_calls"] == [call]
    assert said[0]["reasoning_content"] == "hm"
    assert said[1] == {"role": "assistant", "content": ""}


async def test_hooks(policy: ScriptedPolicy, rollout: RolloutContext) -> None:
    """Users' hooks may change what a tool gets."""

    class Doubling(HookProvider):
        def register_hooks(self, registry: HookRegistry, **kwargs: Any) -> None:
            registry.add_callback(BeforeToolCallEvent, self.double)

        def double(self, event: BeforeToolCallEvent) -> None:
            event.tool_use["input"]["a"] *= 2

    policy.add(reply(tool_calls=[ToolCall("add", {"a": 2, "b": 2})]), "6")
    with rollout:
        await build([add], hooks=[Doubling()]).invoke_async()
    assert policy.requests[1].messages[-1]["content"] == "6"


async def test_system_prompt(policy: ScriptedPolicy, rollout: RolloutContext) -> None:
    """It comes first on the wire and in the trajectory, with the tools, but is no message."""
    policy.add("4")
    with rollout:
        await build([add], system_prompt="Be brief.").invoke_async()
        sample = await sample_of(rollout)
    instructions = {"role": "system", "content": "Be brief."}
    assert policy.requests[0].messages == [instructions, *QUESTION]
    assert [message["role"] for message in sample.messages] == ["user", "assistant"]
    assert sample.trajectory_messages is not None
    head = dict(sample.trajectory_messages[0])
    assert head.pop("tool_definitions") == policy.requests[0].body["tools"]
    assert head == instructions


class Answer(BaseModel):
    """An answer."""

    value: int


async def test_structured_output(policy: ScriptedPolicy, rollout: RolloutContext) -> None:
    """A policy that just talks is asked again, and then has no choice but the tool."""
    policy.add("4", reply(tool_calls=[ToolCall("Answer", {"value": 4})]))
    with rollout:
        result = await build([]).invoke_async(structured_output_model=Answer)
    assert result.structured_output == Answer(value=4)
    assert "tool_choice" not in policy.requests[0].body
    # Older releases of Strands force any tool, of which there is only the one.
    named = {"type": "function", "function": {"name": "Answer"}}
    assert policy.requests[1].body["tool_choice"] in ("required", named)


@pytest.mark.filterwarnings("ignore:Agent.structured_output:DeprecationWarning")
async def test_structured_output_the_old_way(
    policy: ScriptedPolicy, rollout: RolloutContext
) -> None:
    """Strands' older method works too, and says what is wrong when the policy does not play."""
    policy.add(reply(tool_calls=[ToolCall("Answer", {"value": 4})]), "four")
    with rollout:
        agent = build([], system_prompt="Be brief.")
        assert await agent.structured_output_async(Answer) == Answer(value=4)
        with pytest.raises(ValueError, match="did not call Answer"):
            await agent.structured_output_async(Answer, "and now?")
    assert policy.requests[0].messages[0]["content"] == "Be brief."
    assert policy.requests[0].body["tool_choice"]["function"] == {"name": "Answer"}


async def test_sub_agents_as_tools(policy: ScriptedPolicy, rollout: RolloutContext) -> None:
    """They share the model and so the URL and key; only the agent that was bound is the sample."""
    with rollout:
        main = build([])

        @tool
        async def ask_helper(question: str) -> str:
            """Ask a helper."""
            helper = Agent(model=main.model, callback_handler=None, system_prompt="You help.")
            return str(await helper.invoke_async(question))

        @tool
        def ask_other(question: str) -> str:
            """Ask another helper, in a thread."""
            history = [{"role": "user", "content": "Hello."}]
            other = OsmosisStrandsAgent(
                model=main.model, messages=history, callback_handler=None, name="other"
            )
            return str(other(question))

        main.tool_registry.process_tools([ask_helper, ask_other])
        for name in ("ask_helper", "ask_other"):
            policy.add(reply(tool_calls=[ToolCall(name, {"question": f"for {name}"})]), "help")
        policy.add("thanks")
        await main.invoke_async()
        sample = await sample_of(rollout)
    assert [result["content"] for result in results(sample)] == [[{"text": "help\n"}]] * 2
    assert policy.requests[1].messages == [
        {"role": "system", "content": "You help."},
        {"role": "user", "content": "for ask_helper"},
    ]
    assert policy.requests[3].messages[0] == {"role": "user", "content": "Hello."}
    assert {one.headers["authorization"] for one in policy.requests} == {"Bearer sek-ret"}
    assert len(sample.messages) == 6
    # The archive gets their conversations, each on the result that it led to.
    assert sample.trajectory_messages is not None
    helped, asked = [m["subagents"] for m in sample.trajectory_messages if m["role"] == "tool"]
    assert [[m["content"] for m in run["messages"]] for run in (*helped, *asked)] == [
        ["You help.", "for ask_helper", "help"],
        ["Hello.", "for ask_other", "help"],
    ]
    assert asked[0]["agent_name"] == "other"


async def test_sub_agents_of_calls_at_once(policy: ScriptedPolicy, rollout: RolloutContext) -> None:
    """Parallel calls with ids that are used again keep their sub-agents apart."""
    with rollout:
        main = build([])

        @tool
        async def ask(question: str) -> str:
            """Ask a helper, twice."""
            helper = Agent(model=main.model, callback_handler=None)
            await helper.invoke_async(question)
            return str(await helper.invoke_async(f"{question} again"))

        main.tool_registry.process_tools([ask])

        def respond(request: PolicyRequest) -> Reply:
            last = request.messages[-1]
            if last["content"] in ("2+2?", "more"):
                names = [f"{last['content']} {n}" for n in range(2)]
                calls = [ToolCall("ask", {"question": q}, f"call_{q[-1]}") for q in names]
                return reply(tool_calls=calls)
            return reply("done" if last["role"] == "tool" else f"re {last['content']}")

        policy.respond = respond
        await main.invoke_async()
        await main.invoke_async("more")
        sample = await sample_of(rollout)
    told = [m["subagents"] for m in sample.trajectory_messages or () if m["role"] == "tool"]
    assert [len(runs) for runs in told] == [1] * 4
    assert [runs[0]["messages"][-1]["content"] for runs in told] == [
        f"re {prompt} {n} again" for prompt in ("2+2?", "more") for n in range(2)
    ]
    assert [len(runs[0]["messages"]) for runs in told] == [4] * 4


async def test_sub_agents_that_are_asked_the_same(
    policy: ScriptedPolicy, rollout: RolloutContext
) -> None:
    """At once or one after the other, they are conversations of their own."""
    with rollout:
        main = build([])

        @tool
        async def ask() -> str:
            """Ask helpers."""
            helpers = [Agent(model=main.model, callback_handler=None) for _ in range(3)]
            await asyncio.gather(*(one.invoke_async("q") for one in helpers[:2]))
            return str(await helpers[2].invoke_async("q"))

        main.tool_registry.process_tools([ask])
        both = Gate()
        same = reply("same").insert(0, both)
        policy.add(reply(tool_calls=[ToolCall("ask")]), same, same, "again", "4")
        task = asyncio.create_task(main.invoke_async())
        await asyncio.to_thread(policy.wait_for_requests, 3)
        both.open()
        await task
        sample = await sample_of(rollout)
    [told] = [m["subagents"] for m in sample.trajectory_messages or () if m["role"] == "tool"]
    answers = [[m["content"] for m in run["messages"]] for run in told]
    assert answers == [["q", "same"], ["q", "same"], ["q", "again"]]


async def test_sub_agent_of_a_call_without_a_result(
    policy: ScriptedPolicy, rollout: RolloutContext
) -> None:
    """What went on inside a tool call that was cut off is in the partial transcript."""
    with rollout:
        main = build([])

        @tool
        async def ask() -> str:
            """Ask a helper."""
            helper = Agent(model=main.model, callback_handler=None)
            await helper.invoke_async("q")
            return str(await helper.invoke_async("more"))

        main.tool_registry.process_tools([ask])
        call = reply(tool_calls=[ToolCall("ask", {}, "call_0")])
        policy.add(call, "A", "B", call, "C", reply("never").insert(0, Gate()))
        task = asyncio.create_task(main.invoke_async())
        await asyncio.to_thread(policy.wait_for_requests, 6)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        sample = await sample_of(rollout)
    results = [m for m in sample.trajectory_messages or () if m["role"] == "tool"]
    assert ["content" in result for result in results] == [True, False]
    answers = [[m["content"] for m in one["subagents"][0]["messages"]] for one in results]
    assert answers == [["q", "A", "more", "B"], ["q", "C", "more"]]


async def test_sub_agent_without_a_policy_ends_the_rollout(
    policy: ScriptedPolicy, rollout: RolloutContext
) -> None:
    """An outage inside a tool is not told to the policy as a tool error: nobody could trust it."""
    with rollout:
        main = build([])
        helper = Agent(model=main.model, callback_handler=None, name="helper", description="Helps.")
        main.tool_registry.process_tools([helper.as_tool()])
        policy.add(
            reply(tool_calls=[ToolCall("helper", {"input": "help"})]), error_reply(500, "burning")
        )
        with pytest.raises(EventLoopException, match="burning") as caught:
            await main.invoke_async()
        assert isinstance(caught.value.__cause__, PolicyError)
        sample = await sample_of(rollout)
    assert len(policy.requests) == 2
    assert sample.messages[-1]["role"] == "assistant"


@pytest.mark.parametrize("is_dealt_with", [True, False])
async def test_outages_of_tools_at_once(
    policy: ScriptedPolicy, rollout: RolloutContext, is_dealt_with: bool
) -> None:
    """An outage belongs to its own tool call, whatever becomes of the others meanwhile."""
    failed, helped = asyncio.Event(), asyncio.Event()

    def respond(request: PolicyRequest) -> Reply:
        asked = request.messages[-1]
        if asked["role"] == "tool":
            return reply("I give up.")
        if asked["content"] == QUESTION[0]["content"]:
            return reply(tool_calls=[ToolCall("ask"), ToolCall("other")])
        return error_reply(500, "burning") if asked["content"] == "help" else reply("helped")

    async def ask_helper(question: str) -> str:
        helper = Agent(model=main.model, callback_handler=None)
        return str(await helper.invoke_async(question))

    @tool
    async def ask() -> dict[str, Any]:
        """Ask a helper, and keep to itself why there is no help."""
        with pytest.raises(PolicyError):
            await ask_helper("help")
        failed.set()
        await helped.wait()
        status = "success" if is_dealt_with else "error"
        return {"status": status, "content": [{"text": "no help"}]}

    @tool
    async def other() -> str:
        """Ask with success, or fail for reasons of its own."""
        await failed.wait()
        if not is_dealt_with:
            await ask_helper("again")
        helped.set()
        msg = "no luck"
        raise ValueError(msg)

    policy.respond = respond
    with rollout:
        main = build([ask, other])
        if is_dealt_with:
            assert "I give up." in str(await main.invoke_async())
        else:
            with pytest.raises(EventLoopException, match="burning"):
                await main.invoke_async()


async def test_stream_async(policy: ScriptedPolicy, rollout: RolloutContext) -> None:
    """Text and reasoning arrive piece by piece."""
    policy.add(reply(["fo", "ur"], reasoning=["let ", "me"]))
    with rollout:
        events = [event async for event in build([]).stream_async()]
    assert [event["data"] for event in events if "data" in event] == ["fo", "ur"]
    thoughts = [event["reasoningText"] for event in events if "reasoningText" in event]
    assert thoughts == ["let ", "me"]
    assert events[-1]["result"].message["content"] == [
        {"reasoningContent": {"reasoningText": {"text": "let me"}}},
        {"text": "four"},
    ]


async def test_mcp_tools_over_stdio(
    policy: ScriptedPolicy, rollout: RolloutContext, tmp_path: Path
) -> None:
    """Tools of a process that speaks MCP."""
    script = tmp_path / "sums.py"
    script.write_text(MCP_SERVER)
    server = StdioServerParameters(command=sys.executable, args=[str(script)])
    policy.add(reply(tool_calls=[ToolCall("add", {"a": 2, "b": 2})]), "4")
    # The type of transports differs between the releases of mcp that Strands allows.
    connect: Any = lambda: stdio_client(server)  # noqa: E731
    with rollout, MCPClient(connect) as client:
        tools = await asyncio.to_thread(client.list_tools_sync)
        await build([*tools]).invoke_async()
        sample = await sample_of(rollout)
    [result] = results(sample)
    assert result["status"] == "success"
    assert result["content"][0] == {"text": "4"}


async def test_a_big_tool_result(policy: ScriptedPolicy, rollout: RolloutContext) -> None:
    """Two megabytes reach the policy and the sample whole."""
    big = "x" * 2_000_000

    @tool
    def read() -> str:
        """Read a long text."""
        return big

    policy.add(reply(tool_calls=[ToolCall("read")]), "long")
    with rollout:
        await build([read]).invoke_async()
        sample = await sample_of(rollout)
    assert policy.requests[1].messages[-1]["content"] == big
    assert results(sample)[0]["content"] == [{"text": big}]
    assert sample.trajectory_messages is not None
    assert sample.trajectory_messages[-2]["content"] == big


async def test_b45_images_and_documents_of_tools(
    policy: ScriptedPolicy, rollout: RolloutContext
) -> None:
    """B45: bytes are data URLs on the wire, and in what is archived."""

    @tool
    def look() -> dict[str, Any]:
        """Look at something."""
        image = {"format": "png", "source": {"bytes": b"\x89PNG"}}
        document = {"format": "pdf", "name": "report", "source": {"bytes": b"%PDF"}}
        return {
            "status": "success",
            "content": [{"text": "see"}, {"image": image}, {"document": document}],
        }

    policy.add(reply(tool_calls=[ToolCall("look")]), "seen")
    with rollout:
        await build([look]).invoke_async()
        sample = await sample_of(rollout)
    text, image, document = policy.requests[1].messages[-1]["content"]
    assert text == {"type": "text", "text": "see"}
    assert image == {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}}
    assert document["file"]["filename"] == "report.pdf"
    assert document["file"]["file_data"] == "data:application/pdf;base64,JVBERg=="
    assert sample.trajectory_messages is not None
    assert sample.trajectory_messages[-2]["content"] == [text, image, document]
    assert results(sample)[0]["content"][1]["image"]["source"]["bytes"] == b"\x89PNG"
