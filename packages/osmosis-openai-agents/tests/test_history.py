"""What the session and the sample keep when runs fail, go on, or are taken back."""

import asyncio
from typing import Any

import agents.memory.session
import pytest
from agents import (
    Agent,
    MaxTurnsExceeded,
    ModelBehaviorError,
    Runner,
    SQLiteSession,
    function_tool,
)
from agents.memory import SessionSettings

from osmosis_ai.rollout import RolloutContext, RolloutSample
from osmosis_ai.rollout.integrations.agents.openai_agents import (
    OsmosisAgent,
    OsmosisMemorySession,
    OsmosisRolloutModel,
    SessionSampleSource,
)
from osmosis_ai.rollout.testing import Gate, PolicyRequest, Reply, ScriptedPolicy, ToolCall, reply

# Older releases do not say which run it is that asks a session.
tells_runs_apart = pytest.mark.skipif(
    not hasattr(agents.memory.session, "_get_session_wrapper"), reason="needs openai-agents 0.20"
)
UNKNOWN = reply("Hm.", tool_calls=[ToolCall("nonsense")])


def build(**kwargs: Any) -> OsmosisAgent[Any]:
    return OsmosisAgent(**{"name": "a", "model": OsmosisRolloutModel(), **kwargs})


async def sample_of(rollout: RolloutContext) -> RolloutSample:
    sample = await rollout.get_sample()
    assert sample is not None
    return sample


def texts(sample: RolloutSample) -> list[Any]:
    """The texts and the calls of a sample."""
    said: list[Any] = []
    for message in sample.messages:
        content: Any = message.get("content") or message.get("name") or message.get("output")
        said.append(content if isinstance(content, str) else content[0]["text"])
    return said


async def fail(agent: Agent[Any], prompt: Any, session: Any) -> None:
    with pytest.raises(ModelBehaviorError):
        await Runner.run(agent, prompt, session=session)


async def test_a_run_that_goes_on_after_a_failure(
    policy: ScriptedPolicy, rollout: RolloutContext
) -> None:
    """The turn that failed was said; the framework goes on without it, the sample keeps it."""
    policy.add(UNKNOWN, "4")
    with rollout:
        agent, session = build(), OsmosisMemorySession()
        await fail(agent, "2+2?", session)
        assert texts(await sample_of(rollout)) == ["2+2?", "Hm.", "nonsense"]
        await Runner.run(agent, "There is no such tool.", session=session)
        sample = await sample_of(rollout)
        held = await session.get_items()
    assert len(held) == 3
    assert [one["content"] for one in policy.requests[1].messages] == [
        "2+2?",
        "There is no such tool.",
    ]
    assert texts(sample) == ["2+2?", "Hm.", "nonsense", "There is no such tool.", "4"]


async def test_what_the_user_takes_back_is_gone(
    policy: ScriptedPolicy, rollout: RolloutContext
) -> None:
    """`pop_item` and `clear_session` are the user's word; nothing brings the turns back."""
    policy.add("5", "4", UNKNOWN, "6")
    with rollout:
        agent, session = build(), OsmosisMemorySession()
        await Runner.run(agent, "2+2?", session=session)
        await session.pop_item()
        await Runner.run(agent, "Once more.", session=session)
        assert texts(await sample_of(rollout)) == ["2+2?", "Once more.", "4"]
        await session.clear_session()
        await fail(agent, "3+3?", session)
        await session.pop_item()
        await Runner.run(agent, "3+3?", session=session)
        assert texts(await sample_of(rollout)) == ["3+3?", "6"]


async def test_limits_of_the_session_do_not_shorten_the_sample(
    policy: ScriptedPolicy, rollout: RolloutContext
) -> None:
    """A limit decides what the policy reads."""
    policy.add("a", "b", "c")
    with rollout:
        agent, session = build(), OsmosisMemorySession()
        session.session_settings = SessionSettings(limit=1)
        for question in ("1", "2", "3"):
            await Runner.run(agent, question, session=session)
        sample = await sample_of(rollout)
    assert [one["content"] for one in policy.requests[2].messages] == ["b", "3"]
    assert texts(sample) == ["1", "a", "2", "b", "3", "c"]


async def test_other_sessions_keep_the_last_turn_too(
    policy: ScriptedPolicy, rollout: RolloutContext
) -> None:
    """A session in a database, with a failing run after one that did not fail."""
    policy.add("4", UNKNOWN)
    with rollout:
        session = SQLiteSession("s")
        rollout.set_sample_source(SessionSampleSource(session))
        agent = build()
        await Runner.run(agent, "2+2?", session=session)
        await fail(agent, "3+3?", session)
        sample = await sample_of(rollout)
        session.close()
    assert texts(sample) == ["2+2?", "4", "3+3?", "Hm.", "nonsense"]


async def test_samples_are_copies(policy: ScriptedPolicy, rollout: RolloutContext) -> None:
    """Nobody can change the session, or a later sample, through a sample."""
    policy.add("4")
    prompt: Any = [{"role": "user", "content": [{"type": "text", "text": "2+2?"}]}]
    with rollout:
        await Runner.run(build(instructions="Count."), prompt, session=OsmosisMemorySession())
        first = await sample_of(rollout)
        before = first.model_copy(deep=True)
        for messages in (first.messages, first.trajectory_messages):
            for message in messages or ():
                if isinstance(message["content"], list):
                    message["content"].clear()
                message["role"] = "?"  # type: ignore[index]
        again = await sample_of(rollout)
    assert again.messages == before.messages
    assert again.trajectory_messages == before.trajectory_messages
    assert prompt == [{"role": "user", "content": [{"type": "text", "text": "2+2?"}]}]


async def test_a_run_cancelled_in_a_tool(policy: ScriptedPolicy, rollout: RolloutContext) -> None:
    """The turn that called the tool is kept."""
    started = asyncio.Event()

    @function_tool
    async def hang() -> str:
        """Never return."""
        started.set()
        await asyncio.Event().wait()
        return ""

    policy.add(reply("Wait.", tool_calls=[ToolCall("hang")]))
    with rollout:
        run = Runner.run(build(tools=[hang]), "2+2?", session=OsmosisMemorySession())
        task = asyncio.create_task(run)
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        sample = await sample_of(rollout)
    assert texts(sample) == ["2+2?", "Wait.", "hang"]


async def test_a_sample_may_be_asked_for_at_any_time(
    policy: ScriptedPolicy, rollout: RolloutContext
) -> None:
    """Before, during and after a run, inside of the rollout and outside."""
    gate = Gate()
    policy.add(reply("4").insert(0, gate))
    with rollout:
        session = OsmosisMemorySession()
        assert texts(await sample_of(rollout)) == []
        task = asyncio.create_task(Runner.run(build(), "2+2?", session=session))
        await asyncio.to_thread(gate.wait)
        assert texts(await sample_of(rollout)) == ["2+2?"]
        gate.open()
        await task
    assert texts(await sample_of(rollout)) == ["2+2?", "4"]


@tells_runs_apart
async def test_two_runs_at_once_on_one_session(
    policy: ScriptedPolicy, rollout: RolloutContext
) -> None:
    """A mixture of both is a conversation that the policy never had: the first to go on fails."""
    gate = Gate()
    policy.add(reply("4").insert(0, gate), reply("6").insert(0, gate))
    with rollout:
        agent, session = build(), OsmosisMemorySession()
        runs = [Runner.run(agent, prompt, session=session) for prompt in ("2+2?", "3+3?")]
        both = asyncio.gather(*runs)
        await asyncio.to_thread(gate.wait, 2)
        gate.open()
        with pytest.raises(RuntimeError, match="two runs at once use one OsmosisMemorySession"):
            await both


@tells_runs_apart
async def test_a_run_inside_of_a_tool_on_the_same_session(
    policy: ScriptedPolicy, rollout: RolloutContext
) -> None:
    """The tool's run may end, the one around it cannot go on."""
    policy.add(reply(tool_calls=[ToolCall("ask")]), "inner")

    @function_tool
    async def ask() -> str:
        """Ask another agent."""
        result = await Runner.run(build(name="b"), "3+3?", session=session)
        return str(result.final_output)

    with rollout:
        session = OsmosisMemorySession()
        with pytest.raises(RuntimeError, match="two runs at once"):
            await Runner.run(build(tools=[ask]), "2+2?", session=session)
    assert len(policy.requests) == 2


async def test_a_session_with_methods_of_its_own(
    policy: ScriptedPolicy, rollout: RolloutContext
) -> None:
    """The SDK learns what they take from themselves, and not from the methods that they replace."""

    class Watched(OsmosisMemorySession):
        async def add_items(self, items: list[Any]) -> None:
            added.extend(items)
            await super().add_items(items)

    added: list[Any] = []
    policy.add("4")
    with rollout:
        await Runner.run(build(), "2+2?", session=Watched())
        sample = await sample_of(rollout)
    assert texts(sample) == ["2+2?", "4"]
    assert sample.messages == added


async def test_runs_that_take_turns(policy: ScriptedPolicy, rollout: RolloutContext) -> None:
    """In tasks of their own, streamed or not, with items of the user's in between."""
    policy.add("a", "b", "c")
    with rollout:
        agent, session = build(), OsmosisMemorySession()
        await asyncio.create_task(Runner.run(agent, "1", session=session))
        await session.add_items([{"role": "user", "content": "by hand"}])
        result = Runner.run_streamed(agent, "2", session=session)
        async for _ in result.stream_events():
            await session.get_items()
        await asyncio.create_task(Runner.run(agent, "3", session=session))
        sample = await sample_of(rollout)
    assert texts(sample) == ["1", "a", "by hand", "2", "b", "3", "c"]


async def test_a_run_beside_one_that_gave_up(
    policy: ScriptedPolicy, rollout: RolloutContext
) -> None:
    """A run without the session, after one that ended early: its words are no turn of that one."""
    policy.add(reply(tool_calls=[ToolCall("look")]), "A summary.")

    @function_tool
    def look() -> str:
        """Look."""
        return "nothing"

    with rollout:
        session = OsmosisMemorySession()
        with pytest.raises(MaxTurnsExceeded):
            await Runner.run(build(tools=[look]), "2+2?", session=session, max_turns=1)
        history: list[Any] = await session.get_items()
        history.append({"role": "user", "content": "Sum it up."})
        await Runner.run(build(name="b"), history)
        sample = await sample_of(rollout)
    assert texts(sample) == ["2+2?", "look", "nothing"]


async def test_runs_beside_the_one_with_the_session(
    policy: ScriptedPolicy, rollout: RolloutContext
) -> None:
    """Asked first, and one of them asked the very same, they are no turns of the session's run."""
    gate = Gate()

    def respond(request: PolicyRequest) -> Reply:
        return reply(str(request.messages[0]["content"])).insert(0, gate)

    policy.respond = respond
    with rollout:
        session = OsmosisMemorySession()
        await session.add_items([{"role": "user", "content": "2+2?"}])
        others = [build(name="b"), build(name="c", instructions="Be brief.")]
        prompts: list[Any] = ["Any ideas?", [{"role": "user", "content": "2+2?"}]]
        beside = [
            asyncio.create_task(Runner.run(agent, prompt))
            for agent, prompt in zip(others, prompts, strict=True)
        ]
        await asyncio.to_thread(gate.wait, 2)
        main = asyncio.create_task(Runner.run(build(), [], session=session))
        await asyncio.to_thread(gate.wait, 3)
        gate.open()
        await asyncio.gather(main, *beside)
        sample = await sample_of(rollout)
    assert texts(sample) == ["2+2?", "2+2?"]
    assert sample.trajectory_messages is not None
    assert [one["role"] for one in sample.trajectory_messages] == ["user", "assistant"]


async def test_instructions_are_kept_when_the_first_call_fails(
    policy: ScriptedPolicy, rollout: RolloutContext
) -> None:
    """The trajectory says what the policy was told, although it never answered."""
    policy.add(reply("4").cut(1))
    with rollout:
        session = OsmosisMemorySession()
        with pytest.raises(Exception, match=r"broke off|cut off"):
            await Runner.run(build(instructions="Count."), "2+2?", session=session)
        sample = await sample_of(rollout)
    assert sample.trajectory_messages == [
        {"role": "system", "content": "Count."},
        {"role": "user", "content": "2+2?"},
    ]
