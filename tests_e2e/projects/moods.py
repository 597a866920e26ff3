"""A project whose rollouts end as their rows say: `{"do": ...}` in the metadata."""

import asyncio
import os
import signal
import sys
from typing import Any

from osmosis_ai.rollout import (
    AgentWorkflow,
    AgentWorkflowContext,
    Grader,
    GraderContext,
    LocalBackend,
    get_rollout_context,
)
from osmosis_ai.rollout.policy import PolicyClient
from osmosis_ai.rollout.server import create_rollout_server


class Moody(AgentWorkflow):
    async def run(self, ctx: AgentWorkflowContext) -> list[dict[str, Any]]:
        match (ctx.metadata or {}).get("do"):
            case "raise":
                msg = "the search index is gone"
                raise LookupError(msg)
            case "exit":
                sys.exit("leaving")
            case "hang":
                print("about to hang", flush=True)
                await asyncio.Event().wait()
            case "cancel":
                context = get_rollout_context()
                backend.cancel_rollouts(ids=[context.rollout_id if context else ""])
                await asyncio.sleep(60)
            case "kill":
                print("about to be killed", flush=True)
                os.kill(os.getpid(), signal.SIGKILL)
            case _:
                pass
        reply = await PolicyClient().complete(ctx.prompt)
        return [*ctx.prompt, reply.annotated]


class Exact(Grader):
    async def grade(self, ctx: GraderContext) -> None:
        if (ctx.metadata or {}).get("do") == "grade badly":
            msg = "no reference"
            raise ZeroDivisionError(msg)
        answer = ctx.sample.messages[-1]["content"] if ctx.sample else None
        ctx.set_reward(answer == ctx.label)


backend = LocalBackend(workflow=Moody, grader=Exact)
app = create_rollout_server(backend=backend)
guarded = create_rollout_server(backend=backend, api_key="server-key")
