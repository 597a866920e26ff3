"""The sample is the whole conversation, whatever the conversation manager does to it."""

import asyncio
import logging
from typing import Any

import pytest
from strands import Agent, tool
from strands.agent.conversation_manager import (
    ConversationManager,
    NullConversationManager,
    SlidingWindowConversationManager,
    SummarizingConversationManager,
)

from osmosis_ai.rollout import RolloutContext, RolloutSample
from osmosis_ai.rollout.integrations.agents.strands import OsmosisRolloutModel, OsmosisStrandsAgent
from osmosis_ai.rollout.testing import Gate, PolicyRequest, Reply, ScriptedPolicy, ToolCall, reply

QUESTION = [{"role": "user", "content": "Count."}]


@tool
def count(to: int) -> str:
    """Count."""
    return f"counted to {to}"


def build(manager: ConversationManager | None = None, **kwargs: Any) -> OsmosisStrandsAgent:
    return OsmosisStrandsAgent(
        model=OsmosisRolloutModel(**kwargs),
        messages=QUESTION,
        tools=[count],
        callback_handler=None,
        conversation_manager=manager,
    )


def counting(rounds: int) -> Any:
    """Answer with that many rounds of tool calls, whose ids are the same each time."""

    def answer(request: PolicyRequest) -> Reply | str:
        if request.number > rounds:
            return f"done {request.number}"
        return reply(tool_calls=[ToolCall("count", {"to": request.number})])

    return answer


async def sample_of(rollout: RolloutContext) -> RolloutSample:
    sample = await rollout.get_sample()
    assert sample is not None
    return sample


def spoil(value: Any) -> None:
    """Empty whatever can be emptied in a value."""
    if isinstance(value, dict | list):
        for item in list(value.values() if isinstance(value, dict) else value):
            spoil(item)
        value.clear()


def counted(sample: RolloutSample) -> list[int]:
    blocks = [block for message in sample.messages for block in message["content"]]
    return [block["toolUse"]["input"]["to"] for block in blocks if "toolUse" in block]


MANAGERS = {
    "default": lambda: None,
    "null": NullConversationManager,
    "small-window": lambda: SlidingWindowConversationManager(window_size=4),
    "window-each-turn": lambda: SlidingWindowConversationManager(window_size=6, per_turn=True),
    "window-of-nothing": lambda: SlidingWindowConversationManager(window_size=0),
}


@pytest.mark.parametrize("manager", MANAGERS.values(), ids=MANAGERS)
async def test_b43_forty_rounds_in_one_call(
    policy: ScriptedPolicy, rollout: RolloutContext, manager: Any
) -> None:
    """B43: the prompt and every turn are there, in order, in both forms."""
    policy.respond = counting(40)
    with rollout:
        await build(manager()).invoke_async()
        sample = await sample_of(rollout)
    assert len(sample.messages) == 82
    assert sample.messages[0]["content"] == [{"text": "Count."}]
    assert [message["role"] for message in sample.messages] == ["user", "assistant"] * 41
    assert counted(sample) == list(range(1, 41))
    assert sample.trajectory_messages is not None
    turns = sample.trajectory_messages
    assert {key: turns[0][key] for key in ("role", "content")} == QUESTION[0]
    assert [turn["content"] for turn in turns if turn["role"] == "tool"] == [
        f"counted to {number}" for number in range(1, 41)
    ]
    assert turns[-1]["content"] == "done 41"


async def test_b43_window_over_several_calls(
    policy: ScriptedPolicy, rollout: RolloutContext
) -> None:
    """B43: turns that were removed in earlier calls stay in the sample."""
    policy.respond = lambda request: f"answer {request.number}"
    with rollout:
        agent = build(SlidingWindowConversationManager(window_size=2))
        await agent.invoke_async()
        for number in range(2, 6):
            await agent.invoke_async(f"question {number}")
        sample = await sample_of(rollout)
    assert len(agent.messages) == 2
    texts = [message["content"][0]["text"] for message in sample.messages]
    assert texts == [
        "Count.",
        "answer 1",
        *[f"{kind} {number}" for number in range(2, 6) for kind in ("question", "answer")],
    ]


class Pinning(ConversationManager):
    """Keeps the first message and the last two."""

    def apply_management(self, agent: Agent, **kwargs: Any) -> None:
        del agent.messages[1:-2]

    def reduce_context(self, agent: Agent, e: Exception | None = None, **kwargs: Any) -> None:
        self.apply_management(agent)


async def test_b43_pinned_messages_stay_in_front(
    policy: ScriptedPolicy, rollout: RolloutContext
) -> None:
    """B43: what a manager keeps from before the turns that it removes still comes before them."""
    policy.respond = lambda request: f"answer {request.number}"
    with rollout:
        agent = build(Pinning())
        await agent.invoke_async()
        for number in range(2, 5):
            await agent.invoke_async(f"question {number}")
        sample = await sample_of(rollout)
    assert len(agent.messages) == 3
    texts = [message["content"][0]["text"] for message in sample.messages]
    assert texts[:4] == ["Count.", "answer 1", "question 2", "answer 2"]
    assert len(texts) == 8


async def test_b43_summaries_come_after_what_they_replace(
    policy: ScriptedPolicy, rollout: RolloutContext
) -> None:
    """B43: the sample has the summarised turns, the summary and what followed."""

    def answer(request: PolicyRequest) -> str:
        return "summary" if "summarize" in str(request.messages[-1]).lower() else "answer"

    policy.respond = answer
    manager = SummarizingConversationManager(
        summary_ratio=0.8, preserve_recent_messages=1, proactive_compression=True
    )
    with rollout:
        agent = build(manager, context_window_limit=100)
        await agent.invoke_async()
        await agent.invoke_async("question 2 " + "x" * 400)
        sample = await sample_of(rollout)
    texts = [message["content"][0]["text"][:10] for message in sample.messages]
    assert texts == ["Count.", "answer", "summary", "question 2", "answer"]
    assert len(agent.messages) == 3


async def test_collected_in_the_middle_of_a_call(
    policy: ScriptedPolicy, rollout: RolloutContext
) -> None:
    """A rollout that is stopped has what was said so far, removed turns included."""
    gate = Gate()

    def answer(request: PolicyRequest) -> Reply | str:
        turn = counting(9)(request)
        return turn.insert(0, gate) if isinstance(turn, Reply) and request.number == 9 else turn

    policy.respond = answer
    with rollout:
        agent = build(SlidingWindowConversationManager(window_size=4, per_turn=True))
        task = asyncio.create_task(agent.invoke_async())
        await asyncio.to_thread(gate.wait)
        sample = await sample_of(rollout)
        gate.open()
        await task
    assert counted(sample) == list(range(1, 9))
    assert sample.messages[0]["content"] == [{"text": "Count."}]


async def test_what_user_code_removes_is_gone(
    policy: ScriptedPolicy, rollout: RolloutContext
) -> None:
    """A workflow that takes its last question back does not find it in the sample."""
    policy.add("a", "b")
    with rollout:
        agent = build()
        await agent.invoke_async()
        del agent.messages[-1]
        await agent.invoke_async()
        sample = await sample_of(rollout)
    assert [message["content"] for message in sample.messages] == [
        [{"text": "Count."}],
        [{"text": "b"}],
    ]


async def test_sample_is_a_copy(policy: ScriptedPolicy, rollout: RolloutContext) -> None:
    """What a grader does to the sample touches neither the agent nor the trajectory."""
    policy.add("4")
    with rollout:
        agent = build()
        await agent.invoke_async()
        sample = await sample_of(rollout)
    sample.messages[1]["content"][0]["text"] = "5"
    assert agent.messages[1]["content"] == [{"text": "4"}]
    assert sample.trajectory_messages is not None
    assert sample.trajectory_messages[1]["content"] == "4"


async def test_nobody_else_holds_what_a_sample_holds(
    policy: ScriptedPolicy, rollout: RolloutContext
) -> None:
    """What is done to one sample changes neither the next request nor the next sample."""
    policy.add(reply(tool_calls=[ToolCall("count", {"to": 4})]), "4", "done")
    with rollout:
        agent = build()
        await agent.invoke_async()
        sample, untouched = await sample_of(rollout), await sample_of(rollout)
        assert sample.trajectory_messages is not None
        for message in [*sample.messages, *sample.trajectory_messages]:
            spoil(message)
        again = await sample_of(rollout)
        assert again == untouched
        await agent.invoke_async("More.")
    sent, sent_before = policy.requests[2].messages, policy.requests[1].messages
    assert sent[: len(sent_before)] == sent_before


async def test_unknown_blocks_cost_the_trajectory_only(
    policy: ScriptedPolicy, rollout: RolloutContext, caplog: pytest.LogCaptureFixture
) -> None:
    """What cannot be archived is said in a warning; the sample survives."""
    policy.add("4")
    with rollout:
        agent = build()
        await agent.invoke_async()
        odd: Any = {"role": "user", "content": [{"hologram": object()}]}
        agent.messages.append(odd)
        with caplog.at_level(logging.WARNING):
            sample = await sample_of(rollout)
    assert sample.trajectory_messages is None
    assert len(sample.messages) == 3
    assert "hologram" in caplog.text
