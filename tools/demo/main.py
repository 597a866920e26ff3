"""Grade-school math: an agent with a calculator, and a grader that compares numbers."""

import ast
import json
import operator
import re
from decimal import Decimal
from typing import Any

from osmosis_ai.rollout import (
    AgentWorkflow,
    AgentWorkflowContext,
    Grader,
    GraderContext,
    LocalBackend,
)
from osmosis_ai.rollout.policy import PolicyClient
from osmosis_ai.rollout.server import create_rollout_server

CALCULATOR = {
    "type": "function",
    "function": {
        "name": "calculator",
        "description": "Evaluate an arithmetic expression such as (3 + 4) * 2.5.",
        "parameters": {"type": "object", "properties": {"expression": {"type": "string"}}},
    },
}
OPERATORS: dict[type, Any] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.USub: operator.neg,
}
MAX_TURNS = 40
NUMBER = re.compile(r"([+-]?)\$?((?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+)%?\.?")


def calculate(node: ast.AST) -> float:
    match node:
        case ast.Constant(int() | float() as value):
            return value
        case ast.UnaryOp(op, operand) if type(op) in OPERATORS:
            return OPERATORS[type(op)](calculate(operand))
        case ast.BinOp(left, op, right) if type(op) in OPERATORS:
            return OPERATORS[type(op)](calculate(left), calculate(right))
        case _:
            msg = f"cannot evaluate {ast.unparse(node)!r}: use numbers, + - * / and parentheses"
            raise ValueError(msg)


def evaluate(expression: str) -> str:
    """Return what an expression comes to, as people write it."""
    tree = ast.parse(f"({expression})", mode="eval")
    return str(round(calculate(tree.body), 9)).removesuffix(".0")


def run_tool(name: str, arguments: str) -> str:
    """Return the tool's answer; the agent reads its mistakes there too."""
    try:
        if name != "calculator":
            return f"error: there is no tool {name!r}"
        return evaluate(json.loads(arguments)["expression"])
    except Exception as error:  # whatever is wrong with the call, the agent is to read it
        return f"error: {type(error).__name__}: {error}"


class Solver(AgentWorkflow):
    async def run(self, ctx: AgentWorkflowContext) -> list[dict[str, Any]]:
        policy, messages = PolicyClient(), list(ctx.prompt)
        for _ in range(MAX_TURNS):
            reply = await policy.complete(messages, tools=[CALCULATOR])
            messages.append(reply.annotated)
            for call in reply.tool_calls:
                answer = run_tool(call["function"]["name"], call["function"]["arguments"])
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": answer})
            if not reply.tool_calls:
                break
        return messages


def as_number(text: str) -> Decimal | None:
    """Read a number as people write it: 70,000 or $18.00 or 12.5%."""
    found = NUMBER.fullmatch(text.replace(" ", "").replace("\N{MINUS SIGN}", "-"))
    return Decimal(found[1] + found[2].replace(",", "")) if found else None


class NumberGrader(Grader):
    async def grade(self, ctx: GraderContext) -> None:
        content = ctx.sample.messages[-1].get("content") if ctx.sample else ""
        parts = content if isinstance(content, list) else [{"text": content}]  # text or blocks
        text = "\n".join(str(part.get("text", "")) for part in parts)
        answers = re.findall(r"^A:(.*)$", text, re.MULTILINE)
        answer = as_number(answers[-1]) if answers else None
        ctx.set_reward(float(answer is not None and answer == as_number(ctx.label or "")))


backend = LocalBackend(workflow=Solver, grader=NumberGrader)
app = create_rollout_server(backend=backend)
