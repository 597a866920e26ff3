"""Tools, handoffs, guardrails, output types and limits, through real agents."""

import asyncio
from typing import Any

import pytest
from agents import (
    Agent,
    GuardrailFunctionOutput,
    InputGuardrailTripwireTriggered,
    MaxTurnsExceeded,
    ModelBehaviorError,
    ModelSettings,
    OutputGuardrailTripwireTriggered,
    RunConfig,
    Runner,
    ToolOutputImage,
    ToolOutputText,
    UserError,
    WebSearchTool,
    function_tool,
    handoff,
    input_guardrail,
    output_guardrail,
)
from agents.extensions import handoff_filters
from openai import omit
from openai.types.shared import Reasoning
from pydantic import BaseModel

from osmosis_ai.rollout import RolloutContext, RolloutSample
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


def build(**kwargs: Any) -> OsmosisAgent[Any]:
    return OsmosisAgent(**{"name": "a", "model": OsmosisRolloutModel(), **kwargs})


async def run(agent: Agent[Any], prompt: Any = QUESTION, **kwargs: Any) -> Any:
    return await Runner.run(agent, prompt, session=OsmosisMemorySession(), **kwargs)


async def sample_of(rollout: RolloutContext) -> RolloutSample:
    sample = await rollout.get_sample()
    assert sample is not None
    return sample


def shapes(sample: RolloutSample) -> list[str]:
    """What kinds of messages a sample has."""
    return [message.get("role") or message["type"] for message in sample.messages]


@function_tool
def search(query: str) -> str:
    """Search for information."""
    return f"results for {query}"


@function_tool
async def sum_up(a: float, b: float) -> str:
    """Add two numbers."""
    await asyncio.sleep(0)
    return f"{a + b:g}"


async def test_tools_run_side_by_side(policy: ScriptedPolicy, rollout: RolloutContext) -> None:
    """Synchronous and asynchronous tools, called in one turn."""
    calls = [ToolCall("search", {"query": "sum"}), ToolCall("sum_up", {"a": 2, "b": 2})]
    policy.add(reply(tool_calls=calls), "4")
    with rollout:
        result = await run(build(tools=[search, sum_up]))
        sample = await sample_of(rollout)
    assert result.final_output == "4"
    assert shapes(sample) == [
        "user",
        *["function_call"] * 2,
        *["function_call_output"] * 2,
        "assistant",
    ]
    first, second = policy.requests
    assert [tool["function"]["name"] for tool in first.body["tools"]] == ["search", "sum_up"]
    assert [(one["tool_call_id"], one["content"]) for one in second.messages[-2:]] == [
        ("call_0", "results for sum"),
        ("call_1", "4"),
    ]
    assert sample.trajectory_messages is not None
    assert sample.trajectory_messages[0]["tool_definitions"] == first.body["tools"]


@pytest.mark.parametrize("choice", ["search", "required", "none", "auto"])
@pytest.mark.parametrize("streamed", [False, True])
async def test_b52_tool_choice(
    policy: ScriptedPolicy, rollout: RolloutContext, choice: str, streamed: bool
) -> None:
    """B52: every choice reaches the policy, a named one too; after a tool it is reset."""
    policy.add(reply(tool_calls=[ToolCall("search", {"query": "sum"})]), "4")
    settings = ModelSettings(tool_choice=choice, parallel_tool_calls=False)
    with rollout:
        agent = build(tools=[search], model_settings=settings)
        session = OsmosisMemorySession()
        if streamed:
            streamed_run = Runner.run_streamed(agent, QUESTION, session=session)
            async for _ in streamed_run.stream_events():
                pass
        else:
            await Runner.run(agent, QUESTION, session=session)
    first, second = policy.requests
    named = {"type": "function", "function": {"name": "search"}}
    assert first.body["tool_choice"] == (named if choice == "search" else choice)
    assert first.body["parallel_tool_calls"] is False
    assert "tool_choice" not in second.body


async def test_b52_settings_about_tools_without_tools(
    policy: ScriptedPolicy, rollout: RolloutContext
) -> None:
    """B52: endpoints refuse them, so they stay at home."""
    policy.add("4")
    settings = ModelSettings(parallel_tool_calls=True, tool_choice="required")
    with rollout:
        await run(build(model_settings=settings))
    assert not {"parallel_tool_calls", "tool_choice", "tools"} & policy.requests[0].body.keys()


async def test_settings_reach_the_policy(policy: ScriptedPolicy, rollout: RolloutContext) -> None:
    """An explicit setting beats the placeholder's parameter, and the run's beats the agent's."""
    policy.add("4")
    params = {"temperature": 0.1, "top_k": 5, "max_tokens": 9, "extra_body": {"min_p": 0.1}}
    settings = ModelSettings(
        temperature=0.7,
        top_p=0.0,
        max_tokens=11,
        frequency_penalty=0.5,
        presence_penalty=-0.5,
        reasoning=Reasoning(effort="low"),
        top_logprobs=2,
        metadata={"a": "b"},
        store=False,
        verbosity="low",
        extra_args={"seed": 7},
        extra_body={"repetition_penalty": 1.1},
        extra_headers={"X-Tenant": "t-1", "X-Unwanted": omit},
        extra_query={"region": "eu"},
    )
    with rollout:
        agent = build(model=OsmosisRolloutModel(params=params), model_settings=settings)
        await run(agent, run_config=RunConfig(model_settings=ModelSettings(max_tokens=12)))
    [request] = policy.requests
    assert request.body == {
        "model": "osmosis-rollout",
        "messages": QUESTION,
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.7,
        "top_k": 5,
        "top_p": 0.0,
        "max_tokens": 12,
        "min_p": 0.1,
        "frequency_penalty": 0.5,
        "presence_penalty": -0.5,
        "reasoning_effort": "low",
        "top_logprobs": 2,
        "logprobs": True,
        "metadata": {"a": "b"},
        "store": False,
        "verbosity": "low",
        "seed": 7,
        "repetition_penalty": 1.1,
    }
    assert request.headers["x-tenant"] == "t-1"
    assert "x-unwanted" not in request.headers
    assert request.query == "region=eu"


async def test_usage_is_asked_for_unless_unwanted(
    policy: ScriptedPolicy, rollout: RolloutContext
) -> None:
    """`include_usage=False` is respected."""
    policy.add("4")
    with rollout:
        await run(build(model_settings=ModelSettings(include_usage=False)))
    assert "stream_options" not in policy.requests[0].body


class Answer(BaseModel):
    """A structured answer."""

    value: int


async def test_output_type(policy: ScriptedPolicy, rollout: RolloutContext) -> None:
    """The schema goes to the policy, and its text comes back as an object."""
    policy.add('{"value": 4}')
    with rollout:
        result = await run(build(output_type=Answer))
    assert result.final_output == Answer(value=4)
    schema = policy.requests[0].body["response_format"]
    assert schema["type"] == "json_schema"
    assert schema["json_schema"]["schema"]["properties"]["value"]["type"] == "integer"


async def test_output_that_has_not_the_type(
    policy: ScriptedPolicy, rollout: RolloutContext
) -> None:
    """The run fails, and the sample has what the policy said instead."""
    policy.add("four")
    with rollout:
        with pytest.raises(ModelBehaviorError):
            await run(build(output_type=Answer))
        sample = await sample_of(rollout)
    assert sample.messages[-1]["content"][0]["text"] == "four"


async def test_handoffs(policy: ScriptedPolicy, rollout: RolloutContext) -> None:
    """The agent that takes over calls the same policy; its instructions are in the archive."""
    policy.add(reply(tool_calls=[ToolCall("transfer_to_solver")]), "4")
    with rollout:
        solver = build(name="solver", instructions="Solve it.", tools=[sum_up])
        triage = build(instructions="Hand it over.", handoffs=[solver], tools=[search])
        result = await run(triage)
        sample = await sample_of(rollout)
    assert (result.final_output, result.last_agent.name) == ("4", "solver")
    first, second = policy.requests
    names = [tool["function"]["name"] for tool in first.body["tools"]]
    assert names == ["search", "transfer_to_solver"]
    assert second.messages[0] == {"role": "system", "content": "Solve it."}
    assert shapes(sample) == ["user", "function_call", "function_call_output", "assistant"]
    assert sample.trajectory_messages is not None
    archived = [(one["role"], one["content"]) for one in sample.trajectory_messages]
    assert archived[0] == ("system", "Hand it over.")
    assert archived[-2:] == [("system", "Solve it."), ("assistant", "4")]
    known = [one["function"]["name"] for one in sample.trajectory_messages[0]["tool_definitions"]]
    assert known == ["search", "transfer_to_solver", "sum_up"]


async def test_handoff_to_a_plain_agent_and_back(
    policy: ScriptedPolicy, rollout: RolloutContext
) -> None:
    """Plain agents share the bound model: by `agent.model`, or for all by `RunConfig`."""
    for shared in (True, False):
        policy.add(reply(tool_calls=[ToolCall("transfer_to_solver")]), "4")
        with RolloutContext(policy.url):
            agent = build()
            solver = Agent(name="solver", model=agent.model if shared else None)
            agent.handoffs = [solver]
            config = None if shared else RunConfig(model=agent.model)
            result = await run(agent, run_config=config)
        assert result.last_agent is solver
        assert policy.requests[-1].messages[-1]["role"] == "tool"


async def test_handoff_filters_hide_but_do_not_remove(
    policy: ScriptedPolicy, rollout: RolloutContext
) -> None:
    """What a filter hides from the next agent stays in the sample."""
    policy.add(
        reply(tool_calls=[ToolCall("search", {"query": "sum"})]),
        reply("Over to you.", tool_calls=[ToolCall("transfer_to_solver")]),
        "4",
    )
    with rollout:
        solver = build(name="solver")
        hidden = handoff(solver, input_filter=handoff_filters.remove_all_tools)
        await run(build(handoffs=[hidden], tools=[search]))
        sample = await sample_of(rollout)
    assert policy.requests[2].messages == [
        *QUESTION,
        {"role": "assistant", "content": "Over to you."},
    ]
    assert sample.trajectory_messages is not None
    roles = [one["role"] for one in sample.trajectory_messages]
    assert roles == ["user", "assistant", "tool", "assistant", "assistant"]
    last_of_triage = sample.trajectory_messages[3]
    assert last_of_triage["content"] == "Over to you."
    assert last_of_triage["tool_calls"][0]["function"]["name"] == "transfer_to_solver"


async def test_b50_handoff_to_an_unknown_agent(
    policy: ScriptedPolicy, rollout: RolloutContext
) -> None:
    """B50: a made-up handoff fails the run as well, and its call is kept."""
    policy.add(reply(tool_calls=[ToolCall("transfer_to_nobody")]))
    with rollout:
        with pytest.raises(ModelBehaviorError, match="transfer_to_nobody"):
            await run(build(handoffs=[build(name="solver")]))
        sample = await sample_of(rollout)
    assert shapes(sample) == ["user", "function_call"]


async def test_b50_recovery_can_be_asked_for(
    policy: ScriptedPolicy, rollout: RolloutContext
) -> None:
    """B50: as the README shows, the policy is told and the run goes on."""
    policy.add(reply(tool_calls=[ToolCall("searchh", {"query": "x"})]), "4")
    with rollout:
        config = RunConfig(tool_not_found_behavior="return_error_to_model")
        result = await run(build(tools=[search]), run_config=config)
        sample = await sample_of(rollout)
    assert result.final_output == "4"
    assert "searchh" in policy.requests[1].messages[-1]["content"]
    assert shapes(sample) == ["user", "function_call", "function_call_output", "assistant"]


async def test_a_tool_that_raises(policy: ScriptedPolicy, rollout: RolloutContext) -> None:
    """By default the policy is told; a tool that is not to fail quietly fails the run."""

    @function_tool
    def bad() -> str:
        """Fail."""
        msg = "burnt"
        raise ValueError(msg)

    @function_tool(failure_error_function=None)
    def worse() -> str:
        """Fail the run."""
        msg = "burnt down"
        raise ValueError(msg)

    policy.add(reply(tool_calls=[ToolCall("bad")]), reply(tool_calls=[ToolCall("worse")]))
    with rollout:
        with pytest.raises(Exception, match="burnt down"):
            await run(build(tools=[bad, worse]))
        sample = await sample_of(rollout)
    assert "error occurred" in policy.requests[1].messages[-1]["content"]
    assert shapes(sample) == ["user", "function_call", "function_call_output", "function_call"]


async def test_an_agent_as_a_tool(policy: ScriptedPolicy, rollout: RolloutContext) -> None:
    """It calls the same policy, but what graders read has only what it tells its caller."""
    policy.add(
        reply(tool_calls=[ToolCall("ask_helper", {"input": "2+2?"})]),
        "I think 4.",
        "4",
    )
    with rollout:
        helper = build(name="helper", instructions="Help.")
        tool = helper.as_tool("ask_helper", "Ask the helper.")
        await run(build(tools=[tool]))
        sample = await sample_of(rollout)
    assert policy.requests[1].messages == [{"role": "system", "content": "Help."}, *QUESTION]
    assert policy.requests[2].messages[-1]["content"] == "I think 4."
    assert shapes(sample) == ["user", "function_call", "function_call_output", "assistant"]
    assert "Help." not in str(sample.messages)


async def test_a_failure_inside_an_agent_as_a_tool(
    policy: ScriptedPolicy, rollout: RolloutContext
) -> None:
    """What is kept is the outer agent's turn, not the inner one's."""
    policy.add(
        reply(tool_calls=[ToolCall("ask_helper", {"input": "2+2?"})]),
        reply("Inner.", tool_calls=[ToolCall("nonsense")]),
    )
    with rollout:
        helper = build(name="helper")
        tool = helper.as_tool("ask_helper", "Ask the helper.", failure_error_function=None)
        with pytest.raises(Exception, match="nonsense"):
            await run(build(tools=[tool]))
        sample = await sample_of(rollout)
    assert shapes(sample) == ["user", "function_call"]
    assert sample.messages[-1]["name"] == "ask_helper"


def remind(data: Any) -> Any:
    """Add a reminder to what the policy reads, as a `call_model_input_filter`."""
    data.model_data.input = [*data.model_data.input, {"role": "user", "content": "Be brief."}]
    return data.model_data


@pytest.mark.parametrize("behavior", ["run_llm_again", "stop_on_first_tool"])
@pytest.mark.parametrize("input_filter", [None, remind])
async def test_b15_an_outage_inside_a_tool_is_an_outage(
    policy: ScriptedPolicy, rollout: RolloutContext, behavior: Any, input_filter: Any
) -> None:
    """B15: the SDK would let the policy read its own outage, or even make it the answer."""

    async def workflow() -> None:
        config = RunConfig(call_model_input_filter=input_filter)
        await run(build(tools=[tool], tool_use_behavior=behavior), run_config=config)
        await sample_of(rollout)

    call = reply(tool_calls=[ToolCall("ask_helper", {"input": "2+2?"})])
    policy.add(call, error_reply(500, "burning"), "I give up.")
    with rollout:
        tool = build(name="helper").as_tool("ask_helper", "Ask the helper.")
        with pytest.raises(PolicyError, match="burning"):
            await workflow()
        sample = await sample_of(rollout)
    assert len(policy.requests) == 2
    assert shapes(sample) == ["user", "function_call", "function_call_output"]


async def test_b15_an_outage_beside_a_tool_that_asks_with_success(
    policy: ScriptedPolicy, rollout: RolloutContext
) -> None:
    """B15: the tool's answer, which comes later, does not make up for the other's outage."""
    failed = asyncio.Event()

    def respond(request: PolicyRequest) -> Reply:
        asked = request.messages[-1]
        if asked["role"] == "tool":
            return reply("I give up.")
        if asked["content"] == "2+2?":
            return reply(tool_calls=[ToolCall("ask", {"input": "help"}), ToolCall("ask_later")])
        return error_reply(500, "burning") if asked["content"] == "help" else reply("helped")

    def note_failure(_context: Any, _error: Exception) -> str:
        failed.set()
        return "no help"

    @function_tool
    async def ask_later() -> str:
        """Ask when the other tool has failed."""
        await failed.wait()
        return str((await Runner.run(helper, "again")).final_output)

    policy.respond = respond
    with rollout:
        helper = build(name="helper")
        ask = helper.as_tool("ask", "Ask.", failure_error_function=note_failure)
        with pytest.raises(PolicyError, match="burning"):
            await run(build(tools=[ask, ask_later]))


async def test_tools_may_deal_with_an_outage(
    policy: ScriptedPolicy, rollout: RolloutContext
) -> None:
    """A tool that tried again with success, and a run that the user tried again, go on."""
    with rollout:
        helper = build(name="helper")

        @function_tool
        async def ask_helper() -> str:
            """Ask until there is an answer."""
            while True:
                try:
                    return str((await Runner.run(helper, "2+2?")).final_output)
                except PolicyError:
                    continue

        call = reply(tool_calls=[ToolCall("ask_helper")])
        policy.add(call, error_reply(500, "burning"), "4", error_reply(500, "burning"), "Four.")
        agent, session = build(tools=[ask_helper]), OsmosisMemorySession()
        with pytest.raises(PolicyError, match="burning"):
            await Runner.run(agent, QUESTION, session=session)
        result = await Runner.run(agent, "Again.", session=session)
        sample = await sample_of(rollout)
    assert result.final_output == "Four."
    assert shapes(sample)[-2:] == ["user", "assistant"]


@pytest.mark.parametrize("is_answered", [False, True])
async def test_input_guardrail_that_asks_the_policy(
    policy: ScriptedPolicy, rollout: RolloutContext, is_answered: bool
) -> None:
    """A tripped guardrail ends the run; what the guardrail's own agent said is no turn of it."""
    gate = Gate()

    def respond(request: PolicyRequest) -> Reply:
        guards = "Guard." in str(request.messages)
        answer = reply("no" if guards else "4")
        return answer if guards is not is_answered else answer.insert(0, gate)

    policy.respond = respond
    with rollout:
        guard = build(name="guard", instructions="Guard.")

        @input_guardrail
        async def check(_context: Any, _agent: Any, prompt: Any) -> GuardrailFunctionOutput:
            verdict = await Runner.run(guard, prompt)
            return GuardrailFunctionOutput(verdict.final_output, verdict.final_output == "no")

        task = asyncio.create_task(run(build(instructions="Main.", input_guardrails=[check])))
        await asyncio.to_thread(policy.wait_for_requests, 2)
        if is_answered:
            # The agent's answer comes before the guardrail's.
            await asyncio.to_thread(policy.requests[0].wait)
            gate.open()
        with pytest.raises(InputGuardrailTripwireTriggered):
            await task
        sample = await sample_of(rollout)
    assert sample.messages[0] == QUESTION[0]
    said = [one["content"][0]["text"] for one in sample.messages[1:]]
    assert said in ([], ["4"])


async def test_output_guardrail(policy: ScriptedPolicy, rollout: RolloutContext) -> None:
    """A refused answer was said nevertheless."""
    policy.add("5")

    @output_guardrail
    async def check(_context: Any, _agent: Any, output: Any) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(output, output != "4")

    with rollout:
        with pytest.raises(OutputGuardrailTripwireTriggered):
            await run(build(output_guardrails=[check]))
        sample = await sample_of(rollout)
    assert sample.messages[-1]["content"][0]["text"] == "5"


async def test_max_turns(policy: ScriptedPolicy, rollout: RolloutContext) -> None:
    """The session keeps every turn that there was, and a second run can go on from there."""
    policy.respond = lambda _: reply(tool_calls=[ToolCall("search", {"query": "more"})])
    with rollout:
        agent, session = build(tools=[search]), OsmosisMemorySession()
        with pytest.raises(MaxTurnsExceeded):
            await Runner.run(agent, QUESTION, session=session, max_turns=3)
        sample = await sample_of(rollout)
        policy.respond = lambda _: "4"
        result = await Runner.run(agent, "Answer now.", session=session)
    assert shapes(sample) == ["user", *["function_call", "function_call_output"] * 3]
    assert len(policy.requests[-1].messages) == 8
    assert result.final_output == "4"


async def test_forty_rounds_and_large_results(
    policy: ScriptedPolicy, rollout: RolloutContext
) -> None:
    """40 tool rounds in one run, with ids that come again; then a result of 2 MB."""
    size = 2_000_000

    @function_tool
    def dump(length: int) -> str:
        """Return a text."""
        return "x" * length

    policy.add(*[reply(tool_calls=[ToolCall("dump", {"length": n})]) for n in range(40)])
    policy.add(reply(tool_calls=[ToolCall("dump", {"length": size})]), "done")
    with rollout:
        await run(build(tools=[dump]), max_turns=50)
        sample = await sample_of(rollout)
    assert len(sample.messages) == 1 + 2 * 41 + 1
    last = policy.requests[-1].messages
    assert [len(one["content"]) for one in last if one["role"] == "tool"] == [*range(40), size]
    assert sample.trajectory_messages is not None
    assert len(sample.trajectory_messages) == len(last) + 1


async def test_tool_results_with_images(policy: ScriptedPolicy, rollout: RolloutContext) -> None:
    """B48: the policy and the archive get the parts as they are, and no placeholder."""
    url = "data:image/png;base64,iVBORw0KGgo="

    @function_tool
    def picture(with_text: bool) -> Any:
        """Show a picture."""
        image = ToolOutputImage(image_url=url)
        return [ToolOutputText(text="a chart"), image] if with_text else image

    policy.add(
        reply(tool_calls=[ToolCall("picture", {"with_text": True})]),
        reply(tool_calls=[ToolCall("picture", {"with_text": False})]),
        "nice",
    )
    with rollout:
        await run(build(tools=[picture]))
        sample = await sample_of(rollout)
    results = [one["content"] for one in policy.requests[2].messages if one["role"] == "tool"]
    assert [[part["type"] for part in parts] for parts in results] == [
        ["text", "image_url"],
        ["image_url"],
    ]
    assert results[1][0]["image_url"]["url"] == url
    assert sample.trajectory_messages is not None
    assert sample.trajectory_messages[2]["content"] == results[0]


async def test_what_needs_openais_servers_is_refused(
    policy: ScriptedPolicy, rollout: RolloutContext
) -> None:
    """Hosted tools and stored prompts cannot work, and say so before the policy is asked."""
    with rollout:
        session = OsmosisMemorySession()
        with pytest.raises(UserError, match="osted tools"):
            await Runner.run(build(tools=[WebSearchTool()]), QUESTION, session=session)
        with pytest.raises(UserError, match="prompt"):
            await Runner.run(build(prompt={"id": "p"}), QUESTION, session=session)
    assert policy.requests == []


async def test_input_filters_of_a_run(policy: ScriptedPolicy, rollout: RolloutContext) -> None:
    """What `call_model_input_filter` changes is what the policy reads; the sample is whole."""

    def shorten(data: Any) -> Any:
        data.model_data.input = data.model_data.input[-1:]
        return data.model_data

    policy.add("first", "second")
    with rollout:
        agent, session = build(), OsmosisMemorySession()
        config = RunConfig(call_model_input_filter=shorten)
        await Runner.run(agent, QUESTION, session=session, run_config=config)
        await Runner.run(agent, "again", session=session, run_config=config)
        sample = await sample_of(rollout)
    assert policy.requests[1].messages == [{"role": "user", "content": "again"}]
    assert shapes(sample) == ["user", "assistant", "user", "assistant"]


async def test_changed_turns_are_translated_afresh(
    policy: ScriptedPolicy, rollout: RolloutContext
) -> None:
    """A turn that somebody rewrote is sent as rewritten, under the ids that the policy knows."""

    def rewrite(data: Any) -> Any:
        for item in data.model_data.input:
            if item.get("type") == "message" and item["role"] == "assistant":
                item["content"] = [{"type": "output_text", "text": "[hidden]"}]
        return data.model_data

    call = ToolCall("search", {"query": "sum"}, id="x")
    policy.add(reply("One.", tool_calls=[call]), reply("Two.", tool_calls=[call]), "4")
    with rollout:
        config = RunConfig(call_model_input_filter=rewrite)
        await run(build(tools=[search]), run_config=config)
        sample = await sample_of(rollout)
    sent = policy.requests[2].messages
    assert [one["content"] for one in sent if one["role"] == "assistant"] == ["[hidden]"] * 2
    assert [one["tool_calls"][0]["id"] for one in sent if one["role"] == "assistant"] == ["x"] * 2
    assert [one["tool_call_id"] for one in sent if one["role"] == "tool"] == ["x"] * 2
    assert sample.messages[1]["content"][0]["text"] == "One."
