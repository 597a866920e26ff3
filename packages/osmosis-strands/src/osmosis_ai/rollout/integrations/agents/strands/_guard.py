"""What must not happen on an agent that calls the policy."""

from typing import Any, override

from strands.hooks import (
    AfterToolCallEvent,
    BeforeInvocationEvent,
    BeforeToolCallEvent,
    HookProvider,
    HookRegistry,
)

from osmosis_ai.rollout.integrations.agents.strands._delegations import outage_inside
from osmosis_ai.rollout.integrations.agents.strands._model import BoundModel
from osmosis_ai.rollout.policy import PolicyError


class Guard(HookProvider):
    """Refuses to run where it would falsify the sample.

    - In another rollout than the model's, nothing starts.
    - A tool is not run on arguments that are no JSON object: the policy is told so instead.
    - A tool that failed because the policy's endpoint failed, as sub-agents do, ends the rollout:
      Strands would tell the policy about its own outage and go on.
    """

    def __init__(self, model: BoundModel) -> None:
        self._model = model

    @override
    def register_hooks(self, registry: HookRegistry, **kwargs: Any) -> None:
        registry.add_callback(BeforeInvocationEvent, self._before_invocation)
        registry.add_callback(BeforeToolCallEvent, self._before_tool_call)
        registry.add_callback(AfterToolCallEvent, self._after_tool_call)

    def _before_invocation(self, event: BeforeInvocationEvent) -> None:
        self._model.check_rollout()

    def _before_tool_call(self, event: BeforeToolCallEvent) -> None:
        if not isinstance(event.tool_use["input"], dict):
            event.cancel_tool = (
                f"Error: {event.tool_use['name']} was not run: its arguments are not a JSON object"
            )

    def _after_tool_call(self, event: AfterToolCallEvent) -> None:
        if event.result["status"] != "error":
            return
        # Tools that are agents keep the exception to themselves.
        outage = _outage_in(event.exception) or outage_inside()
        if outage is not None:
            raise outage


def _outage_in(error: BaseException | None) -> PolicyError | None:
    """Return the first failure of the endpoint among an error and its causes."""
    while error is not None:
        if isinstance(error, PolicyError) and error.is_endpoint_failure:
            return error
        error = error.__cause__ or error.__context__
    return None
