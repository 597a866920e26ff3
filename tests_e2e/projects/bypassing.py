"""A project whose rollouts keep to what the policy said, or not: `{"do": ...}` in the metadata."""

from typing import Any

from osmosis_ai.rollout import AgentWorkflow, AgentWorkflowContext, LocalBackend
from osmosis_ai.rollout.policy import PolicyClient
from osmosis_ai.rollout.server import create_rollout_server


class Bypassing(AgentWorkflow):
    async def run(self, ctx: AgentWorkflowContext) -> list[dict[str, Any]]:
        policy = PolicyClient()
        messages = [*ctx.prompt, (await policy.complete(ctx.prompt)).annotated]
        match (ctx.metadata or {}).get("do"):
            case "bypass":
                await policy.complete([*messages, {"role": "user", "content": "Sure?"}])
                return [*messages, {"role": "assistant", "content": "By hand."}]
            case "rewrite":
                messages = [{"role": "user", "content": "Shorter."}, *messages[1:]]
                more = [*messages, {"role": "user", "content": "Sure?"}]
                return [*more, (await policy.complete(more)).annotated]
            case _:
                return messages


app = create_rollout_server(backend=LocalBackend(workflow=Bypassing))
