"""The placeholder that users write into configs, and the model that it becomes."""

import copy
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, NoReturn, cast, override

from agents import ModelBehaviorError, ModelSettings, UserError
from agents.agent_output import AgentOutputSchemaBase
from agents.handoffs import Handoff
from agents.items import ModelResponse, TResponseInputItem, TResponseStreamEvent
from agents.models.interface import Model, ModelTracing
from agents.retry import ModelRetryAdvice, ModelRetryNormalizedError
from agents.tool import Tool

from osmosis_ai.rollout import MessageDict, RolloutContext
from osmosis_ai.rollout.integrations.agents.openai_agents._chat import to_chat
from osmosis_ai.rollout.integrations.agents.openai_agents._delegations import (
    follow,
    running_call,
)
from osmosis_ai.rollout.integrations.agents.openai_agents._record import Record
from osmosis_ai.rollout.integrations.agents.openai_agents._sdk import (
    chat_response_format,
    chat_tools,
)
from osmosis_ai.rollout.integrations.agents.openai_agents._session import SessionSampleSource
from osmosis_ai.rollout.integrations.agents.openai_agents._settings import request_params
from osmosis_ai.rollout.integrations.agents.openai_agents._stream import reply_events
from osmosis_ai.rollout.integrations.agents.openai_agents._tracing import agent_name, policy_span
from osmosis_ai.rollout.integrations.agents.openai_agents._turns import Item, Request, Turn
from osmosis_ai.rollout.integrations.agents.openai_agents._usage import run_usage
from osmosis_ai.rollout.policy import PolicyClient, PolicyReply


class OsmosisRolloutModel(Model):
    """Stands for the current policy in workflow configs; wrap it in `OsmosisAgent`.

    It opens no connection and knows no model id, so it can be built at import time and copied with
    the config.

    Args:
        config: The model's settings. `params` are sampling parameters that go along with every
            call (`temperature`, `max_tokens`, `extra_body`...) unless `ModelSettings` say
            otherwise.

    Raises:
        NotImplementedError: by every method, since nothing but an agent can bind it to a rollout.
    """

    def __init__(self, **config: Any) -> None:
        self._config = config

    @property
    def settings(self) -> dict[str, Any]:
        """A copy of what the model was built with."""
        return copy.deepcopy(self._config)

    @override
    async def get_response(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise _unwrapped()

    @override
    def stream_response(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise _unwrapped()


class BoundModel(Model):
    """The policy of one rollout, as a model of the Agents SDK.

    Args:
        settings: The placeholder's.
        context: The rollout.
    """

    def __init__(self, settings: dict[str, Any], context: RolloutContext) -> None:
        self._params: dict[str, Any] = settings.get("params") or {}
        self._context = context
        self._client = PolicyClient(context.chat_completions_url, api_key=context.api_key)

    @override
    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        """Ask the policy and return its reply; arguments are those of `agents.Model`.

        Raises:
            PolicyError: the endpoint failed or refused.
            RuntimeError: no session is registered, or this is not the model's own rollout.
            agents.ModelBehaviorError: the length limit cut a tool call.
            agents.UserError: the request holds what chat completions do not know.
        """
        async with self._exchange(*args, **kwargs) as ask:
            reply = await self._client.complete(ask.messages, tools=ask.tools, **ask.params)
            turn = ask.take(reply)
        return ModelResponse(output=turn.output, usage=run_usage(reply.usage), response_id=None)

    @override
    async def stream_response(
        self, *args: Any, **kwargs: Any
    ) -> AsyncGenerator[TResponseStreamEvent]:
        """Ask the policy and yield its reply as it comes; otherwise the same as `get_response`."""
        async with self._exchange(*args, **kwargs) as ask:
            items = self._client.stream(ask.messages, tools=ask.tools, **ask.params)
            async with aclosing(reply_events(items, ask.take)) as events:
                async for event in events:
                    yield event

    def get_retry_advice(self, request: object) -> ModelRetryAdvice:
        """Forbid the framework to call again: one call is one sample of the policy.

        The policy client has tried again by then where nothing was sampled yet.
        """
        return ModelRetryAdvice(
            suggested=False,
            replay_safety="unsafe",
            reason="one call is one sample of the policy",
            normalized=ModelRetryNormalizedError(is_abort=True),
        )

    @asynccontextmanager
    async def _exchange(
        self,
        system_instructions: str | None,
        input: str | list[TResponseInputItem],
        model_settings: ModelSettings,
        tools: list[Tool],
        output_schema: AgentOutputSchemaBase | None,
        handoffs: list[Handoff[Any, Any]],
        tracing: ModelTracing,
        **server_state: Any,
    ) -> AsyncGenerator["_Ask"]:
        source = self._source()
        _refuse_server_state(server_state)
        follow(tools)
        request = Request(system_instructions, chat_tools(tools, handoffs), agent_name())
        items = _items(input)
        messages = _messages(system_instructions, items, source.record)
        params = request_params(self._params, model_settings, has_tools=bool(request.tools))
        if response_format := chat_response_format(output_schema):
            params["response_format"] = response_format
        with (
            policy_span(tracing, messages, params) as tell,
            source.record.call(
                await source.state(), request, items, running_call(self._context)
            ) as add,
        ):

            def take(reply: PolicyReply) -> Turn:
                turn = add(reply)
                tell(reply)
                _refuse_cut_call(reply)
                return turn

            yield _Ask(messages, request.tools, params, take)

    def _source(self) -> SessionSampleSource:
        """Return what records the conversation.

        Raises:
            RuntimeError: there is none, or another rollout or none is active.
        """
        self._context.check_active("agent")
        source = self._context.sample_source
        if not isinstance(source, SessionSampleSource):
            msg = (
                "nothing records this conversation for the rollout's sample: pass "
                "session=OsmosisMemorySession(), built inside run(), to Runner.run()"
            )
            raise RuntimeError(msg)
        return source


@dataclass(frozen=True)
class _Ask:
    """A call to the policy, and what takes its reply."""

    messages: list[MessageDict]
    tools: list[dict[str, Any]]
    params: dict[str, Any]
    take: Callable[[PolicyReply], Turn]


def _items(input: str | list[TResponseInputItem]) -> Sequence[Item]:
    if isinstance(input, str):
        return [{"role": "user", "content": input}]
    return cast("Sequence[Item]", input)


def _messages(instructions: str | None, items: Sequence[Item], record: Record) -> list[MessageDict]:
    conversation = to_chat(items, record.turns)
    if instructions:
        return [{"role": "system", "content": instructions}, *conversation]
    return conversation


def _refuse_server_state(server_state: dict[str, Any]) -> None:
    if named := [name for name, value in server_state.items() if value is not None]:
        msg = f"{', '.join(named)} cannot be used: the policy's endpoint keeps no state of its own"
        raise UserError(msg)


def _refuse_cut_call(reply: PolicyReply) -> None:
    """Let no tool run on the arguments of a call that the length limit cut."""
    if reply.truncated and reply.finish_reason == "length":
        msg = (
            "the policy reached its length limit (max_tokens) in the middle of a tool call, which "
            "cannot be run; the rollout's record has the text as it came"
        )
        raise ModelBehaviorError(msg)


def _unwrapped() -> NotImplementedError:
    return NotImplementedError(
        "OsmosisRolloutModel is a placeholder for the policy of a rollout: give it to "
        "OsmosisAgent(model=...) inside run(), not to another agent class or to RunConfig"
    )
