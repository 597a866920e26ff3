"""The placeholder that users write into configs, and the model that it becomes."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, NoReturn, override

from pydantic import BaseModel
from strands.models import Model
from strands.tools.structured_output import convert_pydantic_to_tool_spec
from strands.types.content import Messages
from strands.types.streaming import StreamEvent
from strands.types.tools import ToolChoice, ToolSpec

from osmosis_ai.rollout import MessageDict, RolloutContext
from osmosis_ai.rollout.integrations.agents.strands._delegations import noting
from osmosis_ai.rollout.integrations.agents.strands._memory import Memory, Origin
from osmosis_ai.rollout.integrations.agents.strands._stream import (
    EventStream,
    reply_origin,
    tool_uses,
)
from osmosis_ai.rollout.integrations.agents.strands._to_chat import chat_tool_choice, chat_tools
from osmosis_ai.rollout.policy import PolicyClient, PolicyReply
from osmosis_ai.rollout.types.copying import deep_copy


class OsmosisRolloutModel(Model):
    """Stands for the current policy in workflow configs; wrap it in `OsmosisStrandsAgent`.

    It opens no connection and knows no model id, so it can be built at import time and copied with
    the config.

    Args:
        config: The model's settings. `params` are sampling parameters that go along with every
            call (`temperature`, `max_tokens`, `extra_body`...); `context_window_limit` is what
            Strands' context managers ask for. Others are kept for `agent.model.get_config()`.

    Raises:
        NotImplementedError: by every method, since nothing but an agent can bind it to a rollout.
    """

    def __init__(self, **config: Any) -> None:
        self._config = config

    @property
    def settings(self) -> dict[str, Any]:
        """A copy of what the model was built with."""
        return deep_copy(self._config)

    @override
    def update_config(self, *args: Any, **model_config: Any) -> NoReturn:
        raise _unwrapped()

    @override
    def get_config(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise _unwrapped()

    @override
    def structured_output(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise _unwrapped()

    @override
    def stream(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise _unwrapped()


class BoundModel(Model):
    """The policy of one rollout, as a Strands model.

    It raises `PolicyError` when the endpoint fails, and never what makes Strands try again by
    itself: one call of the model is one sample of the policy.

    Args:
        config: Settings as in `OsmosisRolloutModel`.
        context: The rollout that it belongs to.

    Attributes:
        memory: What the Strands messages of the rollout were made from.
    """

    def __init__(self, config: dict[str, Any], context: RolloutContext) -> None:
        self.memory = Memory()
        self._config = config
        self._context = context
        self._client = PolicyClient(context.chat_completions_url, api_key=context.api_key)

    @override
    def update_config(self, **model_config: Any) -> None:
        """Replace settings, e.g. `params`."""
        self._config.update(model_config)

    @override
    def get_config(self) -> dict[str, Any]:
        """Return the settings."""
        return self._config

    def check_rollout(self) -> None:
        """Make sure that the code that runs belongs to the model's rollout.

        Raises:
            RuntimeError: another rollout, or none, is active.
        """
        self._context.check_active("agent")

    @override
    async def stream(
        self,
        messages: Messages,
        tool_specs: list[ToolSpec] | None = None,
        system_prompt: str | None = None,
        *,
        tool_choice: ToolChoice | None = None,
        **kwargs: Any,
    ) -> AsyncGenerator[StreamEvent, None]:
        """Ask the policy and yield its reply as it comes.

        Raises:
            PolicyError: the endpoint failed or refused.
            RuntimeError: the agent is used in another rollout than its own.
            ValueError: a message has no chat-completions form.
        """
        self.check_rollout()
        conversation = self._conversation(messages, system_prompt)
        tools = chat_tools(tool_specs) if tool_specs else None
        params = self._params()
        if tool_choice and tools:
            params["tool_choice"] = chat_tool_choice(tool_choice)
        events = EventStream()
        state: dict[str, Any] = kwargs.get("invocation_state") or {}
        items = self._client.stream(conversation, tools=tools, **params)
        yield {"messageStart": {"role": "assistant"}}
        async with aclosing(items):
            with noting(conversation, state) as note:
                async for item in items:
                    for event in events.take(item):
                        yield event
                    if isinstance(item, PolicyReply):
                        note(self._remember(item, events.content).archive[0])

    @override
    async def structured_output[T: BaseModel](
        self,
        output_model: type[T],
        prompt: Messages,
        system_prompt: str | None = None,
        **kwargs: Any,
    ) -> AsyncGenerator[dict[str, T | Any], None]:
        """Have the policy fill in `output_model` and yield it as `{"output": ...}`.

        Raises:
            PolicyError: the endpoint failed or refused.
            RuntimeError: the agent is used in another rollout than its own.
            ValueError: the policy did not fill it in, or not validly.
        """
        self.check_rollout()
        spec = convert_pydantic_to_tool_spec(output_model)
        params = self._params()
        params["tool_choice"] = chat_tool_choice({"tool": spec})
        conversation = self._conversation(prompt, system_prompt)
        with noting(conversation, {}) as note:
            reply = await self._client.complete(conversation, tools=chat_tools([spec]), **params)
            note(reply_origin(reply).archive[0])
        for use in tool_uses(reply):
            if use["name"] == spec["name"]:
                yield {"output": output_model.model_validate(use["input"])}
                return
        msg = f"the policy did not call {spec['name']}, which stands for the structured output"
        raise ValueError(msg)

    def _remember(self, reply: PolicyReply, content: list[dict[str, Any]]) -> Origin:
        origin = reply_origin(reply)
        self.memory.remember({"role": "assistant", "content": content}, origin)
        return origin

    def _params(self) -> dict[str, Any]:
        return dict(self._config.get("params") or {})

    def _conversation(self, messages: Messages, system_prompt: str | None) -> list[MessageDict]:
        instructions: list[MessageDict] = []
        if system_prompt:
            instructions = [{"role": "system", "content": system_prompt}]
        return [*instructions, *self.memory.wire(messages)]


def _unwrapped() -> NotImplementedError:
    return NotImplementedError(
        "OsmosisRolloutModel is a placeholder for the policy of a rollout: give it to "
        "OsmosisStrandsAgent(model=...) inside run(), not to another agent class"
    )
