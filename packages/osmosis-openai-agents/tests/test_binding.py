"""How the placeholder becomes a rollout's policy, and where agents and sessions refuse."""

import asyncio
import copy
import threading
from typing import Any

import pytest
from agents import Agent, ModelSettings, RunConfig, Runner, SQLiteSession, function_tool

from osmosis_ai.rollout import RolloutContext, SampleSource, get_rollout_context
from osmosis_ai.rollout.integrations.agents.openai_agents import (
    OsmosisAgent,
    OsmosisMemorySession,
    OsmosisRolloutModel,
    SessionSampleSource,
)
from osmosis_ai.rollout.testing import Gate, PolicyRequest, Reply, ScriptedPolicy, ToolCall, reply

QUESTION: list[Any] = [{"role": "user", "content": "2+2?"}]


def build(**kwargs: Any) -> OsmosisAgent[Any]:
    return OsmosisAgent(name="a", **{"model": OsmosisRolloutModel(), **kwargs})


async def ask(**kwargs: Any) -> str:
    """Build an agent and a session, run them, and return the answer."""
    result = await Runner.run(build(**kwargs), QUESTION, session=OsmosisMemorySession())
    return str(result.final_output)


async def test_calls_the_rollouts_policy(policy: ScriptedPolicy, rollout: RolloutContext) -> None:
    """The URL and key are the context's, the parameters the placeholder's, the model nobody's."""
    policy.add("4")
    with rollout:
        answer = await ask(model=OsmosisRolloutModel(params={"temperature": 0.7, "top_k": 5}))
    assert answer == "4"
    [request] = policy.requests
    assert request.path == "/v1/chat/completions"
    assert request.headers["authorization"] == "Bearer sek-ret"
    assert request.messages == QUESTION
    assert request.body == {
        "model": "osmosis-rollout",
        "messages": QUESTION,
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.7,
        "top_k": 5,
    }


async def test_no_key_sends_no_key(policy: ScriptedPolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host's own key never goes to the policy."""
    monkeypatch.setenv("OPENAI_API_KEY", "host-key")
    policy.add("4")
    with RolloutContext(policy.url):
        await ask()
    assert "authorization" not in policy.requests[0].headers


async def test_placeholder_is_inert() -> None:
    """It survives deep copies and refuses every use, whatever the arguments."""
    placeholder = copy.deepcopy(OsmosisRolloutModel(params={"stop": ["x"]}, anything=1))
    for args, kwargs in (((), {}), ((1, 2), {"a": 3}), ((), {"params": {}})):
        with pytest.raises(NotImplementedError, match="OsmosisAgent"):
            await placeholder.get_response(*args, **kwargs)
        with pytest.raises(NotImplementedError, match="OsmosisAgent"):
            placeholder.stream_response(*args, **kwargs)


async def test_unwrapped_placeholder_names_the_agent_class(rollout: RolloutContext) -> None:
    """In a plain agent, or for a whole run, it fails at the first call and says what to use."""
    plain = Agent(name="plain", model=OsmosisRolloutModel())
    with rollout:
        with pytest.raises(NotImplementedError, match="OsmosisAgent"):
            await Runner.run(plain, "hi")
        config = RunConfig(model=OsmosisRolloutModel())
        with pytest.raises(NotImplementedError, match="RunConfig"):
            await Runner.run(build(), "hi", run_config=config)


def test_no_rollout_no_agent() -> None:
    """Outside of a rollout there is no policy to bind."""
    with pytest.raises(RuntimeError, match="RolloutContext"):
        build()


def test_arguments_are_those_of_an_agent(rollout: RolloutContext) -> None:
    """Positions and names are those of `agents.Agent`; a copy stays bound, or is bound anew."""
    with rollout:
        agent = OsmosisAgent("a", "helps", instructions="Be brief.", model=OsmosisRolloutModel())
        assert (agent.name, agent.handoff_description) == ("a", "helps")
        assert agent.clone(name="b").model is agent.model
        again = agent.clone(model=OsmosisRolloutModel()).model
    assert not isinstance(again, OsmosisRolloutModel)
    assert again is not agent.model


def test_other_models_make_a_plain_agent() -> None:
    """Any other model is left as it is, and needs no rollout."""
    assert OsmosisAgent(name="a", model="gpt-4.1").model == "gpt-4.1"
    assert OsmosisAgent(name="a").model is None


def test_failed_constructors_register_nothing(rollout: RolloutContext) -> None:
    """Agents never register, and a session only when it is there."""
    with rollout:
        with pytest.raises(TypeError):
            build(no_such_argument=1)
        build()
        assert rollout.sample_source is None
        OsmosisMemorySession()
    assert isinstance(rollout.sample_source, SessionSampleSource)


async def test_a_call_without_a_session_says_what_to_pass(
    policy: ScriptedPolicy, rollout: RolloutContext
) -> None:
    """Without a session there is no sample: the first call says so, before it asks the policy."""
    with rollout, pytest.raises(RuntimeError, match=r"session=OsmosisMemorySession\(\)"):
        await Runner.run(build(), QUESTION)
    with rollout, pytest.raises(RuntimeError, match=r"session=OsmosisMemorySession\(\)"):
        async for _ in Runner.run_streamed(build(), "hi").stream_events():
            pass
    assert policy.requests == []


async def test_a_session_that_no_run_used_is_no_sample(
    policy: ScriptedPolicy, rollout: RolloutContext
) -> None:
    """The policy has answered, but into no session: that is an error, not an empty sample."""
    policy.add("4")
    with rollout:
        OsmosisMemorySession()
        await Runner.run(build(), QUESTION)
        with pytest.raises(RuntimeError, match=r"session=OsmosisMemorySession\(\)"):
            await rollout.get_sample()


def test_b44_second_source(rollout: RolloutContext) -> None:
    """B44: one conversation per rollout; the second session is told so."""
    with rollout:
        OsmosisMemorySession()
        with pytest.raises(ValueError, match="sample source"):
            OsmosisMemorySession()


async def test_another_kind_of_source_is_no_session(
    policy: ScriptedPolicy, rollout: RolloutContext
) -> None:
    """What another framework registered does not record what this one says."""

    class Other(SampleSource):
        async def get_sample(self) -> Any:
            raise AssertionError

    with rollout:
        rollout.set_sample_source(Other())
        with pytest.raises(RuntimeError, match="OsmosisMemorySession"):
            await Runner.run(build(), QUESTION)
    assert policy.requests == []


async def test_b44_agent_in_another_rollout(
    policy: ScriptedPolicy, rollout: RolloutContext
) -> None:
    """B44: an agent that outlives its rollout is refused."""
    with rollout:
        agent = build()
    with RolloutContext(policy.url, "other-key", "r-2"):
        session = OsmosisMemorySession()
        with pytest.raises(RuntimeError, match=r"'r-1'.*in another rollout"):
            await Runner.run(agent, "more", session=session)
    with pytest.raises(RuntimeError, match="outside of every rollout"):
        await Runner.run(agent, "more")
    assert policy.requests == []


async def test_session_in_another_rollout(policy: ScriptedPolicy, rollout: RolloutContext) -> None:
    """Every method refuses, and names the class; what it holds stays as it was."""
    with rollout:
        session = OsmosisMemorySession()
        await session.add_items([{"role": "user", "content": "mine"}])
    outside = OsmosisMemorySession()

    async def refuses(used: OsmosisMemorySession) -> None:
        for call in (
            used.get_items,
            used.pop_item,
            used.clear_session,
            lambda: used.get_items(1),
            lambda: used.add_items([]),
        ):
            with pytest.raises(RuntimeError, match="OsmosisMemorySession"):
                await call()

    with RolloutContext(policy.url, rollout_id="r-2"):
        await refuses(session)
        await refuses(outside)
    await refuses(session)
    with rollout:
        assert await session.get_items() == [{"role": "user", "content": "mine"}]


async def test_session_outside_of_every_rollout() -> None:
    """There it is a plain session, registered nowhere."""
    session = OsmosisMemorySession("mine")
    assert session.session_id == "mine"
    items: list[Any] = [
        {"role": "user", "content": [{"type": "input_text", "text": str(n)}]} for n in range(4)
    ]
    await session.add_items(items)
    items[0]["content"].clear()
    held = await session.get_items()
    assert [item["content"][0]["text"] for item in held] == ["0", "1", "2", "3"]  # type: ignore[typeddict-item]
    held[0]["content"].clear()  # type: ignore[typeddict-item,union-attr]
    assert (await session.get_items())[0] != held[0]
    assert await session.get_items(limit=2) == held[2:]
    assert await session.get_items(limit=0) == []
    assert await session.get_items(limit=9) == await session.get_items()
    assert await session.pop_item() == held[3]
    await session.clear_session()
    assert await session.get_items() == []
    assert await session.pop_item() is None


async def test_any_session_can_be_the_source(
    policy: ScriptedPolicy, rollout: RolloutContext
) -> None:
    """`SessionSampleSource` makes the sample out of any session of the SDK."""
    policy.add("4")
    with rollout:
        session = SQLiteSession("s")
        rollout.set_sample_source(SessionSampleSource(session))
        await Runner.run(build(), "2+2?", session=session)
        sample = await rollout.get_sample()
        session.close()
    assert sample is not None
    assert [message["role"] for message in sample.messages] == ["user", "assistant"]


async def test_b04_threads_see_their_own_rollout_or_none(policy: ScriptedPolicy) -> None:
    """B04: to_thread and tasks take the rollout along; executors and raw threads have none."""
    policy.respond = lambda request: request.headers["authorization"]

    def run_sync(agent: OsmosisAgent[Any], session: OsmosisMemorySession) -> str:
        # The SDK makes a loop for the thread and leaves it open.
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        try:
            return str(Runner.run_sync(agent, "again", session=session).final_output)
        finally:
            asyncio.set_event_loop(None)
            loop.close()

    def in_raw_thread(*args: Any) -> str:
        told: list[str] = []

        def call() -> None:
            try:
                told.append(run_sync(*args))
            except RuntimeError as error:
                told.append(str(error))

        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
        return told[0]

    async def one(number: int) -> list[str]:
        with RolloutContext(policy.url, f"key-{number}", f"r-{number}"):
            agent, session = build(), OsmosisMemorySession()
            run = Runner.run(agent, QUESTION, session=session)
            said = [
                str((await asyncio.create_task(run)).final_output),
                await asyncio.to_thread(run_sync, agent, session),
            ]
            assert "outside of every rollout" in await asyncio.to_thread(
                in_raw_thread, agent, session
            )
            loop = asyncio.get_running_loop()
            with pytest.raises(RuntimeError, match="outside of every rollout"):
                await loop.run_in_executor(None, run_sync, agent, session)
            assert len(await session.get_items()) == 4
        return said

    told = await asyncio.gather(*(one(number) for number in range(8)))
    assert told == [[f"Bearer key-{number}"] * 2 for number in range(8)]


async def test_hundreds_of_rollouts_at_once() -> None:
    """Each has its own URL and key, although all of them are in flight together."""
    count = 200
    gate = Gate()

    def answer(request: PolicyRequest) -> Reply:
        told = f"{request.path} {request.headers['authorization']}"
        return reply(told).insert(0, gate)

    async def one(root: str, number: int) -> str:
        with RolloutContext(f"{root}/rollouts/{number}/v1", f"key-{number}", f"r-{number}") as own:
            await ask()
            sample = await own.get_sample()
        assert sample is not None
        return str(sample.messages[-1]["content"][0]["text"])

    with ScriptedPolicy(respond=answer) as policy:
        root = policy.url.removesuffix("/v1")
        work = asyncio.gather(*(one(root, number) for number in range(count)))
        await asyncio.to_thread(gate.wait, count, timeout=50)
        gate.open()
        told = await work
    assert told == [
        f"/rollouts/{number}/v1/chat/completions Bearer key-{number}" for number in range(count)
    ]


async def test_tools_see_their_own_rollout(policy: ScriptedPolicy, rollout: RolloutContext) -> None:
    """The active context of a tool is its rollout's."""

    @function_tool
    def which() -> str:
        """Tell the rollout."""
        context = get_rollout_context()
        return context.rollout_id if context else "none"

    policy.add(reply(tool_calls=[ToolCall("which")]), "done")
    with rollout:
        await ask(tools=[which], model_settings=ModelSettings(parallel_tool_calls=True))
    assert policy.requests[1].messages[-1]["content"] == "r-1"
