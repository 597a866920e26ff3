"""What a model call used: token counts, cost, token ids and log probabilities."""

from collections.abc import Callable, Iterable
from typing import Any, cast

from osmosis_ai.rollout.trajectory._json import (
    MAX_INT,
    JsonObject,
    as_list,
    as_object,
    is_plain_floats,
    is_plain_ints,
)

# Each field of an ATIF metrics object, in the spellings of OpenAI's two APIs, Anthropic and
# Strands. A spelling with a dot lies in an object of details.
_PROMPT = ("prompt_tokens", "input_tokens", "inputTokens")
_COMPLETION = ("completion_tokens", "output_tokens", "outputTokens")
_CACHED = (
    "cached_tokens",
    "prompt_tokens_details.cached_tokens",
    "input_tokens_details.cached_tokens",
    "cache_read_input_tokens",
    "cacheReadInputTokens",
)
_COST = ("cost_usd", "cost")
_PROMPT_IDS = ("prompt_token_ids",)
_COMPLETION_IDS = ("completion_token_ids", "token_ids")
_LOGPROBS = ("logprobs",)


def take_metrics(fields: JsonObject) -> JsonObject | None:
    """Remove what belongs to the model call from a cleaned message's `fields`.

    Returns:
        An ATIF metrics object (https://www.harborframework.com/docs/agents/trajectory-format), or
        None when the message tells nothing of its call.
    """
    ids = {
        key: fields.pop(key)
        for key in (*_PROMPT_IDS, *_COMPLETION_IDS, *_LOGPROBS)
        if key in fields
    }
    return normal_metrics({**ids, **_take_usage(fields)})


def _take_usage(fields: JsonObject) -> JsonObject:
    if usage := as_object(fields.get("usage")):
        del fields["usage"]
        return usage
    for outer in (_inner(fields, "extra", "response"), _inner(fields, "metadata")):
        if usage := as_object(outer.get("usage")):
            return dict(usage)
    return {}


def _inner(fields: JsonObject, *keys: str) -> JsonObject:
    for key in keys:
        fields = as_object(fields.get(key)) or {}
    return fields


def normal_metrics(raw: JsonObject) -> JsonObject | None:
    """Turn cleaned figures of a call, however spelled, into an ATIF metrics object.

    What fits no field is kept in the object's `extra`; None when there is nothing at all.
    """
    left = {key: value for key, value in raw.items() if value is not None}
    extra = as_object(left.pop("extra", None)) or {}
    found = {
        "prompt_tokens": _take(left, _PROMPT, _count),
        "completion_tokens": _take(left, _COMPLETION, _count),
        "cached_tokens": _take(left, _CACHED, _count),
        "cost_usd": _take(left, _COST, _amount),
        "prompt_token_ids": _take(left, _PROMPT_IDS, _token_ids),
        "completion_token_ids": _take(left, _COMPLETION_IDS, _token_ids),
        "logprobs": _logprobs(left),
        "extra": {**extra, **left} or None,
    }
    return {name: value for name, value in found.items() if value is not None} or None


def _take(left: JsonObject, names: Iterable[str], read: Callable[[object], Any]) -> Any:
    """Return the first readable value; it leaves `left` unless it is part of a details object."""
    for name in names:
        outer, _, inner = name.partition(".")
        value = (as_object(left.get(outer)) or {}).get(inner) if inner else left.get(outer)
        if (result := read(value)) is not None:
            if not inner:
                del left[outer]
            return result
    return None


def _count(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if value != int(value) or not 0 <= value <= MAX_INT:
        return None
    return int(value)


def _amount(value: object) -> float | None:
    return None if isinstance(value, bool) or not isinstance(value, int | float) else float(value)


def _token_ids(value: object) -> list[int] | None:
    values = as_list(value)
    return values if values is not None and is_plain_ints(values) else None


def _floats(value: object) -> list[float] | None:
    values = as_list(value)
    return values if values is not None and is_plain_floats(values) else None


def _logprobs(left: JsonObject) -> list[float] | None:
    """Return the log probabilities; OpenAI's object, which tells more, stays in `left` as well."""
    if (numbers := _take(left, _LOGPROBS, _floats)) is not None:
        return cast("list[float]", numbers)
    entries = as_list((as_object(left.get("logprobs")) or {}).get("content"))
    if entries is None:
        return None
    return _floats([(as_object(entry) or {}).get("logprob") for entry in entries])
