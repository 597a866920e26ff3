"""What the gateway tells of a rollout: to the run, and to the server for the trajectory.

The second has the form of the report in a callback's answer:
`{"trajectory": {"samples": {<key>: {"llm_call_metrics": [...], "final_metrics": {...}}}}}`.
"""

from collections.abc import Sequence
from statistics import fmean
from typing import Any, Final

from osmosis_ai.rollout.eval._gateway._calls import Call, Calls, Messages, as_count
from osmosis_ai.rollout.eval._gateway._findings import findings
from osmosis_ai.rollout.policy.answers import as_object

_COUNTS: Final = ("prompt_tokens", "completion_tokens")


def outcome_report(calls: Calls, messages: Messages | None, prompt: Messages) -> dict[str, Any]:
    """Return what goes into a rollout's outcome: numbers over its calls, and findings.

    Args:
        calls: The rollout's calls.
        messages: The sample's messages, or None without a sample.
        prompt: The row's prompt.
    """
    behind = None if messages is None else calls.behind(messages, prompt)
    answered = calls.answered
    seconds = [call.duration_sec for call in answered if call.duration_sec is not None]
    first = [call.first_byte_sec for call in answered if call.first_byte_sec is not None]
    return {
        "calls": len(calls.all),
        **{name: _total(answered, name) for name in _COUNTS},
        "models": _models(answered),
        "first_byte_sec": fmean(first) if first else None,
        "call_sec": fmean(seconds) if seconds else None,
        "findings": [finding.as_json() for finding in findings(calls.all, behind)],
    }


def trajectory_report(steps: Sequence[Call | None], calls: Sequence[Call]) -> dict[str, Any]:
    """Return the answer to a callback.

    Args:
        steps: The call behind each of the agent's steps, or None where there is none.
        calls: All calls that were answered, for the totals.
    """
    models = _models(calls)
    totals = {f"total_{name}": _total(calls, name) for name in (*_COUNTS, "cached_tokens")}
    sample = {
        "model_name": models[0] if len(models) == 1 else None,
        "llm_call_metrics": [_metrics(call) if call else {} for call in steps],
        "final_metrics": {name: total for name, total in totals.items() if total is not None},
    }
    return {"trajectory": {"samples": {"gateway": sample}}}


def _metrics(call: Call) -> dict[str, Any]:
    reply = call.replies[0]
    known = {
        "prompt_tokens": call.tokens("prompt_tokens"),
        "completion_tokens": call.tokens("completion_tokens"),
        "cached_tokens": _tokens(call, "cached_tokens"),
        "prompt_token_ids": reply.prompt_token_ids,
        "completion_token_ids": reply.token_ids,
        "logprobs": reply.logprobs,
        "model_name": reply.model,
    }
    seconds = {
        "first_byte_sec": call.first_byte_sec,
        "duration_sec": call.duration_sec,
        "finish_reason": reply.finish_reason,
    }
    return {key: value for key, value in known.items() if value is not None} | {"extra": seconds}


def _models(calls: Sequence[Call]) -> list[str]:
    named = (reply.model for call in calls for reply in call.replies)
    return list(dict.fromkeys(model for model in named if model))


def _total(calls: Sequence[Call], name: str) -> int | None:
    counts = [_tokens(call, name) for call in calls]
    told = [count for count in counts if count is not None]
    return sum(told) if told and len(told) == len(counts) else None


def _tokens(call: Call, name: str) -> int | None:
    if name != "cached_tokens":
        return call.tokens(name)
    return as_count(as_object(call.usage.get("prompt_tokens_details")).get("cached_tokens"))
