"""What a model call used: token counts, cost, token ids and log probabilities."""

from collections.abc import Callable
from typing import Final

from osmosis_ai.rollout.trajectory._json import (
    MAX_INT,
    JsonObject,
    as_list,
    as_object,
    is_figure,
)
from osmosis_ai.rollout.trajectory._numbers import Numbers, find_numbers, with_lists

_DETAILS = ("prompt_tokens_details", "input_tokens_details")
TOKEN_KEYS = ("prompt_token_ids", "completion_token_ids", "token_ids", "logprobs")
"""The keys of a message under which `Numbers` may stand."""

_KEYS = frozenset({*TOKEN_KEYS, "usage", "extra", "metadata"})


def take_metrics(fields: JsonObject) -> JsonObject | None:
    """Remove what belongs to the model call from a cleaned message's `fields`.

    Returns:
        An ATIF metrics object (https://www.harborframework.com/docs/agents/trajectory-format), or
        None when the message tells nothing of its call.
    """
    if fields.keys().isdisjoint(_KEYS):
        return None
    figures = _take_usage(fields)
    for key in TOKEN_KEYS:
        if key in fields:
            figures[key] = fields.pop(key)
    return normal_metrics(figures)


def _take_usage(fields: JsonObject) -> JsonObject:
    if usage := as_object(fields.get("usage")):
        del fields["usage"]
        return usage
    if "extra" not in fields and "metadata" not in fields:
        return {}
    response = as_object((as_object(fields.get("extra")) or {}).get("response"))
    for outer in (response, as_object(fields.get("metadata"))):
        if outer and (usage := as_object(outer.get("usage"))):
            return dict(usage)
    return {}


def normal_metrics(figures: JsonObject) -> JsonObject | None:
    """Turn cleaned figures of a call, however spelled, into an ATIF metrics object.

    What fits no field is kept in the object's `extra`; None when there is nothing at all.
    """
    left = {key: value for key, value in figures.items() if value is not None}
    extra = as_object(left.pop("extra", None)) or {}
    metrics: JsonObject = {}
    for spelling, (field, read) in _SPELLINGS.items():
        if spelling not in left or field in metrics:
            continue
        if (value := read(left[spelling])) is not None:
            metrics[field] = value
            del left[spelling]
    if "cached_tokens" not in metrics and (cached := _cached_in_details(left)) is not None:
        metrics["cached_tokens"] = cached
    if "logprobs" in left and (logprobs := _entries_logprobs(left["logprobs"])) is not None:
        metrics["logprobs"] = logprobs
    if extra or left:
        metrics["extra"] = {**extra, **with_lists(left)}
    return metrics or None


def _cached_in_details(left: JsonObject) -> int | None:
    for key in _DETAILS:
        if details := as_object(left.get(key)):
            return _count(details.get("cached_tokens"))
    return None


def _count(value: object) -> int | None:
    if not is_figure(value) or not 0 <= value <= MAX_INT or value != int(value):
        return None
    return int(value)


def _amount(value: object) -> float | None:
    return float(value) if is_figure(value) else None


def _token_ids(value: object) -> Numbers | None:
    numbers = _numbers(value)
    return numbers if numbers is not None and numbers.are_ints else None


def _numbers(value: object) -> Numbers | None:
    return value if isinstance(value, Numbers) else find_numbers(value)


def _entries_logprobs(value: object) -> Numbers | None:
    """Return the log probabilities in OpenAI's object, which tells more and is kept as well."""
    entries = as_list((as_object(value) or {}).get("content"))
    if entries is None:
        return None
    return find_numbers([(as_object(entry) or {}).get("logprob") for entry in entries])


# By spelling, in OpenAI's two APIs, Anthropic and Strands: the field of an ATIF metrics object, and
# what reads it. Of several spellings of a field the first one counts.
_SPELLINGS: Final[dict[str, tuple[str, Callable[[object], object]]]] = {
    spelling: (field, read)
    for field, read, spellings in (
        ("prompt_tokens", _count, ("prompt_tokens", "input_tokens", "inputTokens")),
        ("completion_tokens", _count, ("completion_tokens", "output_tokens", "outputTokens")),
        (
            "cached_tokens",
            _count,
            ("cached_tokens", "cache_read_input_tokens", "cacheReadInputTokens"),
        ),
        ("cost_usd", _amount, ("cost_usd", "cost")),
        ("prompt_token_ids", _token_ids, ("prompt_token_ids",)),
        ("completion_token_ids", _token_ids, ("completion_token_ids", "token_ids")),
        ("logprobs", _numbers, ("logprobs",)),
    )
    for spelling in spellings
}
