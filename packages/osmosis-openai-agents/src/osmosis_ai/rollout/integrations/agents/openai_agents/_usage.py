"""Token counts of the endpoint in the forms that the framework knows."""

from collections.abc import Mapping
from typing import Any, Final

from agents.usage import Usage

_DETAILS: Final = {
    "prompt_tokens_details": "cached_tokens",
    "completion_tokens_details": "reasoning_tokens",
}


def chat_usage(usage: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the counts that every OpenAI-style endpoint has, if both of them are there."""
    given = usage or {}
    read, written = given.get("prompt_tokens"), given.get("completion_tokens")
    if not (isinstance(read, int) and isinstance(written, int)):
        return None
    total = given.get("total_tokens")
    counts: dict[str, Any] = {
        "prompt_tokens": read,
        "completion_tokens": written,
        "total_tokens": total if isinstance(total, int) else read + written,
    }
    for group, name in _DETAILS.items():
        details: Mapping[str, Any] = given.get(group) or {}
        if isinstance(count := details.get(name), int):
            counts[group] = {name: count}
    return counts


def run_usage(usage: Mapping[str, Any] | None) -> Usage:
    """Return the usage of one call for the run's sum, where counts not given are zero."""
    result = Usage(requests=1)
    counts = chat_usage(usage)
    if counts is None:
        return result
    result.input_tokens = counts["prompt_tokens"]
    result.output_tokens = counts["completion_tokens"]
    result.total_tokens = counts["total_tokens"]
    # Copies, because releases differ in what these classes require.
    if details := counts.get("prompt_tokens_details"):
        result.input_tokens_details = result.input_tokens_details.model_copy(update=details)
    if details := counts.get("completion_tokens_details"):
        result.output_tokens_details = result.output_tokens_details.model_copy(update=details)
    return result
