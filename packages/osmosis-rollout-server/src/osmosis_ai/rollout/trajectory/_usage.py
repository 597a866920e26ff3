"""What a model call used: token counts, cost, token ids and log probabilities."""

from collections.abc import Callable, Iterable

from osmosis_ai.rollout.trajectory._json import (
    MAX_INT,
    JsonObject,
    as_list,
    as_object,
    is_figure,
    is_plain_floats,
    is_plain_ints,
    present,
)

# Each field of an ATIF metrics object, in the spellings of OpenAI's two APIs, Anthropic and
# Strands.
_PROMPT = ("prompt_tokens", "input_tokens", "inputTokens")
_COMPLETION = ("completion_tokens", "output_tokens", "outputTokens")
_CACHED = (
    "cached_tokens",
    "cache_read_input_tokens",
    "cacheReadInputTokens",
)
_DETAILS = ("prompt_tokens_details", "input_tokens_details")
_COST = ("cost_usd", "cost")
_PROMPT_IDS = ("prompt_token_ids",)
_COMPLETION_IDS = ("completion_token_ids", "token_ids")
_LOGPROBS = ("logprobs",)
_TOKEN_KEYS = (*_PROMPT_IDS, *_COMPLETION_IDS, *_LOGPROBS)


def take_metrics(fields: JsonObject) -> JsonObject | None:
    """Remove what belongs to the model call from a cleaned message's `fields`.

    Returns:
        An ATIF metrics object (https://www.harborframework.com/docs/agents/trajectory-format), or
        None when the message tells nothing of its call.
    """
    figures = _take_usage(fields)
    figures |= {key: fields.pop(key) for key in _TOKEN_KEYS if key in fields}
    return normal_metrics(figures)


def _take_usage(fields: JsonObject) -> JsonObject:
    if usage := as_object(fields.get("usage")):
        del fields["usage"]
        return usage
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
    cached = _take(left, _CACHED, _count)
    metrics = present(
        prompt_tokens=_take(left, _PROMPT, _count),
        completion_tokens=_take(left, _COMPLETION, _count),
        cached_tokens=_cached_in_details(left) if cached is None else cached,
        cost_usd=_take(left, _COST, _amount),
        prompt_token_ids=_take(left, _PROMPT_IDS, _token_ids),
        completion_token_ids=_take(left, _COMPLETION_IDS, _token_ids),
        logprobs=_logprobs(left),
        extra={**extra, **left} or None,
    )
    return metrics or None


def _take[T](
    left: JsonObject, spellings: Iterable[str], read: Callable[[object], T | None]
) -> T | None:
    """Remove the first readable value from `left` and return it."""
    for key in spellings:
        if key in left and (value := read(left[key])) is not None:
            del left[key]
            return value
    return None


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


def _token_ids(value: object) -> list[int] | None:
    values = as_list(value)
    return values if values is not None and is_plain_ints(values) else None


def _floats(value: object) -> list[float] | None:
    values = as_list(value)
    return values if values is not None and is_plain_floats(values) else None


def _logprobs(left: JsonObject) -> list[float] | None:
    """Return the log probabilities; OpenAI's object, which tells more, stays in `left` as well."""
    if (numbers := _take(left, _LOGPROBS, _floats)) is not None:
        return numbers
    entries = as_list((as_object(left.get("logprobs")) or {}).get("content"))
    if entries is None:
        return None
    return _floats([(as_object(entry) or {}).get("logprob") for entry in entries])
