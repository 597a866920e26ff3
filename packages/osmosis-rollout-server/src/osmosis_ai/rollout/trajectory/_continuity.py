"""Whether the model's calls read, token for token, what the calls before them wrote.

A trainer that learns from token ids needs this: where a history is put into tokens anew, the ids of
a turn may change, and what is learned is not what was sampled.
"""

from collections.abc import Sequence
from itertools import pairwise

from osmosis_ai.rollout.trajectory._json import JsonObject, present
from osmosis_ai.rollout.trajectory._numbers import Numbers


def token_continuity(agent_steps: Sequence[JsonObject]) -> JsonObject:
    """Compare the prompt of each call with the prompt and the answer of the call before it.

    Args:
        agent_steps: The steps of the calls, in order.

    Returns:
        Nothing when no two calls in a row told their token ids; else `token_continuity`:
        `prompts_extend`, whether every prompt that could be compared begins with all the ids of the
        call before; `compared` and `not_compared`, how many could be and could not; and
        `first_break`, the `step_id` of the first that does not, with the `token_index` in its
        prompt from which on it differs (its length, when it is only shorter).
    """
    compared = 0
    first_break: JsonObject | None = None
    for before, step in pairwise(agent_steps):
        seen, prompt = _all_ids(before), _ids(step, "prompt_token_ids")
        if seen is None or prompt is None:
            continue
        compared += 1
        if first_break is None and (at := _first_difference(seen, prompt)) is not None:
            first_break = {"step_id": step["step_id"], "token_index": at}
    if not compared:
        return {}
    return {
        "token_continuity": present(
            prompts_extend=first_break is None,
            compared=compared,
            not_compared=len(agent_steps) - 1 - compared,
            first_break=first_break,
        )
    }


def _ids(step: JsonObject, key: str) -> list[int] | None:
    numbers: Numbers | None = step.get("metrics", {}).get(key)
    return None if numbers is None else numbers.values


def _all_ids(step: JsonObject) -> list[int] | None:
    prompt, completion = _ids(step, "prompt_token_ids"), _ids(step, "completion_token_ids")
    return None if prompt is None or completion is None else prompt + completion


def _first_difference(seen: list[int], prompt: list[int]) -> int | None:
    if prompt[: len(seen)] == seen:
        return None
    pairs = enumerate(zip(seen, prompt, strict=False))
    return next((index for index, (one, other) in pairs if one != other), len(prompt))
