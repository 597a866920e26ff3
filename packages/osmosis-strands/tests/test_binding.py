"""How the placeholder becomes a rollout's policy, and where it refuses to."""

import asyncio
import copy
import threading
from typing import Any

import pytest
from strands import Agent
from strands.models.bedrock import BedrockModel
from strands.types.exceptions import ConcurrencyException

from osmosis_ai.rollout import RolloutContext
from osmosis_ai.rollout.integrations.agents.strands import OsmosisRolloutModel, OsmosisStrandsAgent
from osmosis_ai.rollout.testing import Gate, PolicyRequest, Reply, ScriptedPolicy, reply

QUESTION = [{"role": "user", "content": "2+2?"}]


def build(**kwargs: Any) -> OsmosisStrandsAgent:
    return OsmosisStrandsAgent(
        model=kwargs.pop("model", OsmosisRolloutModel()),
        messages=kwargs.pop("messages", QUESTION),
        callback_handler=None,
        **kwargs,
    )


async def test_calls_the_rollouts_policy(policy: ScriptedPolicy, rollout: RolloutContext) -> None:
    """The URL and key are the context's, the parameters the placeholder's, the model nobody's."""
    policy.add("4")
    with rollout:
        params = {"temperature": 0.7, "extra_body": {"top_k": 5}, "extra_headers": {"X-A": "b"}}
        agent = build(model=OsmosisRolloutModel(params=params))
        result = await agent.invoke_async()
    assert str(result).strip() == "4"
    [request] = policy.requests
    assert request.path == "/v1/chat/completions"
    assert request.headers["authorization"] == "Bearer sek-ret"
    assert request.headers["x-a"] == "b"
    assert request.body["model"] == "osmosis-rollout"
    assert request.body["stream"] is True
    assert (request.body["temperature"], request.body["top_k"]) == (0.7, 5)
    assert request.messages == QUESTION


async def test_no_key_sends_no_key(policy: ScriptedPolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host's own key never goes to the policy."""
    monkeypatch.setenv("OPENAI_API_KEY", "host-key")
    policy.add("4")
    with RolloutContext(policy.url):
        await build().invoke_async()
    assert "authorization" not in policy.requests[0].headers


def test_placeholder_is_inert() -> None:
    """It survives deep copies and refuses every use, whatever the arguments."""
    placeholder = copy.deepcopy(OsmosisRolloutModel(params={"stop": ["x"]}, anything=1))
    for method in ("stream", "structured_output", "get_config", "update_config"):
        for args, kwargs in (((), {}), ((1, 2), {"a": 3}), ((), {"params": {}})):
            with pytest.raises(NotImplementedError, match="OsmosisStrandsAgent"):
                getattr(placeholder, method)(*args, **kwargs)


async def test_unwrapped_placeholder_names_the_agent_class(rollout: RolloutContext) -> None:
    """In a plain Strands agent it fails at the first call, and says what to use instead."""
    with rollout:
        agent = Agent(model=OsmosisRolloutModel(), callback_handler=None)
        with pytest.raises(NotImplementedError, match="OsmosisStrandsAgent"):
            await agent.invoke_async("hi")


def test_no_rollout_no_agent() -> None:
    """Outside of a rollout there is no policy to bind."""
    with pytest.raises(RuntimeError, match="RolloutContext"):
        build()


def test_positional_arguments(rollout: RolloutContext) -> None:
    """Model and messages may be positional, as in Strands, but not given twice."""
    with rollout:
        agent = OsmosisStrandsAgent(OsmosisRolloutModel(), QUESTION, None, "Be brief.")
    assert agent.system_prompt == "Be brief."
    assert rollout.sample_source is not None
    assert agent.messages == [{"role": "user", "content": [{"text": "2+2?"}]}]
    with rollout, pytest.raises(TypeError, match="two values for 'model'"):
        OsmosisStrandsAgent(agent.model, model=agent.model)


def test_failed_constructor_registers_nothing(rollout: RolloutContext) -> None:
    """A later, correct agent of the same rollout can still be built."""
    with rollout:
        with pytest.raises(TypeError):
            build(no_such_argument=1)
        with pytest.raises(ValueError, match="message 0"):
            build(messages=[{"content": "who says this?"}])
        assert rollout.sample_source is None
        build()
    assert rollout.sample_source is not None


def test_other_models_make_a_plain_agent(rollout: RolloutContext) -> None:
    """Nothing is registered for a model that is not the placeholder."""
    with rollout:
        agent = build(model=BedrockModel(model_id="some-model"))
        assert isinstance(agent.model, BedrockModel)
        assert isinstance(OsmosisStrandsAgent(callback_handler=None).model, BedrockModel)
    assert rollout.sample_source is None


def test_prompt_stays_private(rollout: RolloutContext) -> None:
    """The agent's history is its own; neither the list nor the messages given are touched."""
    prompt: list[dict[str, Any]] = [
        {"role": "user", "content": [{"text": "hi"}]},
        {"role": "assistant", "content": "ho"},
    ]
    before = copy.deepcopy(prompt)
    with rollout:
        agent = build(messages=prompt)
    agent.messages[0]["content"].append({"text": "more"})
    agent.messages.append({"role": "user", "content": [{"text": "and more"}]})
    assert prompt == before


def test_b44_second_source(rollout: RolloutContext) -> None:
    """B44: one conversation per rollout; the second agent is told so."""
    with rollout:
        build()
        with pytest.raises(ValueError, match="sample source"):
            build()


async def test_b44_agent_in_another_rollout(
    policy: ScriptedPolicy, rollout: RolloutContext
) -> None:
    """B44: an agent that outlives its rollout is refused, before it touches its history."""
    with rollout:
        agent = build()
    other = RolloutContext(policy.url, "other-key", "r-2")
    with other, pytest.raises(RuntimeError, match=r"'r-1'.*in another rollout"):
        await agent.invoke_async("more")
    with pytest.raises(RuntimeError, match="outside of every rollout"):
        await agent.invoke_async("more")
    assert len(agent.messages) == 1
    assert policy.requests == []


async def test_b44_overlapping_calls(policy: ScriptedPolicy, rollout: RolloutContext) -> None:
    """B44: of two calls at once one is refused, and the history stays whole."""
    policy.add("4")
    with rollout:
        agent = build()
        results = await asyncio.gather(
            agent.invoke_async(), agent.invoke_async(), return_exceptions=True
        )
        sample = await rollout.get_sample()
    assert [type(result) for result in results].count(ConcurrencyException) == 1
    assert sample is not None
    assert [message["role"] for message in sample.messages] == ["user", "assistant"]


async def test_b04_threads_see_their_own_rollout_or_none(policy: ScriptedPolicy) -> None:
    """B04: to_thread and tasks take the rollout along; executors and raw threads have none."""
    policy.respond = lambda request: request.headers["authorization"]

    def in_raw_thread(agent: OsmosisStrandsAgent, errors: list[str]) -> None:
        def call() -> None:
            try:
                agent("again")
            except RuntimeError as error:
                errors.append(str(error))

        thread = threading.Thread(target=call)
        thread.start()
        thread.join()

    async def one(number: int) -> list[str]:
        with RolloutContext(policy.url, f"key-{number}", f"r-{number}"):
            agent = build()
            said = [
                str(await asyncio.create_task(agent.invoke_async())),
                str(await asyncio.to_thread(agent, "again")),
            ]
            errors: list[str] = []
            await asyncio.to_thread(in_raw_thread, agent, errors)
            loop = asyncio.get_running_loop()
            with pytest.raises(RuntimeError, match="outside of every rollout"):
                await loop.run_in_executor(None, agent, "again")
        assert len(errors) == 1
        assert "outside of every rollout" in errors[0]
        return [text.strip() for text in said]

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
            await build().invoke_async()
            sample = await own.get_sample()
        assert sample is not None
        return sample.messages[-1]["content"][0]["text"]

    with ScriptedPolicy(respond=answer) as policy:
        root = policy.url.removesuffix("/v1")
        work = asyncio.gather(*(one(root, number) for number in range(count)))
        await asyncio.to_thread(gate.wait, count, timeout=50)
        gate.open()
        told = await work
    assert told == [
        f"/rollouts/{number}/v1/chat/completions Bearer key-{number}" for number in range(count)
    ]


async def test_settings_can_change_while_it_runs(
    policy: ScriptedPolicy, rollout: RolloutContext
) -> None:
    """The bound model keeps the placeholder's settings, and takes new ones as Strands models do."""
    policy.add("a", "b")
    placeholder = OsmosisRolloutModel(params={"temperature": 1.0}, context_window_limit=1000)
    with rollout:
        agent = build(model=placeholder)
        await agent.invoke_async()
        agent.model.update_config(params={"temperature": 0.0})
        await agent.invoke_async("again")
        assert agent.model.context_window_limit == 1000
    assert [request.body["temperature"] for request in policy.requests] == [1.0, 0.0]
