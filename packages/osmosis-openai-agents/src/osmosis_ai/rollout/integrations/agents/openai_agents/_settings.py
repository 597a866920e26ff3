"""Sampling parameters: what the placeholder was given, and what the agent's settings say."""

from collections.abc import Mapping
from typing import Any, Final

from agents import ModelSettings

from osmosis_ai.rollout.integrations.agents.openai_agents._sdk import chat_tool_choice

# Fields of ModelSettings that chat completions know by the same name. Releases differ in which of
# them they have.
_SAME_NAME: Final = (
    "extra_query",
    "frequency_penalty",
    "max_tokens",
    "metadata",
    "parallel_tool_calls",
    "presence_penalty",
    "prompt_cache_options",
    "prompt_cache_retention",
    "store",
    "temperature",
    "top_logprobs",
    "top_p",
    "verbosity",
)
_ABOUT_TOOLS: Final = ("parallel_tool_calls", "tool_choice")


def request_params(
    params: Mapping[str, Any], settings: ModelSettings, *, has_tools: bool
) -> dict[str, Any]:
    """Return the parameters of a call to the policy.

    Args:
        params: The placeholder's, which apply where the settings say nothing.
        settings: The agent's, with the run's over them.
        has_tools: Whether there are tools; endpoints refuse parameters about tools without any.
    """
    merged = {**_flat(params), **_explicit(settings)}
    merged |= _flat({**(settings.extra_args or {}), "extra_body": settings.extra_body})
    if has_tools:
        return merged
    return {name: value for name, value in merged.items() if name not in _ABOUT_TOOLS}


def _flat(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters with those of `extra_body` among them, where they end up anyway."""
    flat = dict(params)
    body = flat.pop("extra_body", None)
    return {**flat, **(body or {})}


def _explicit(settings: ModelSettings) -> dict[str, Any]:
    given = {name: getattr(settings, name, None) for name in _SAME_NAME}
    given["tool_choice"] = chat_tool_choice(settings.tool_choice)
    if settings.reasoning is not None:
        given["reasoning_effort"] = settings.reasoning.effort
    if settings.extra_headers is not None:
        # Those that are set to the SDK's `omit` are to be left out.
        headers = settings.extra_headers.items()
        given["extra_headers"] = {name: text for name, text in headers if isinstance(text, str)}
    if given["top_logprobs"] is not None:
        given["logprobs"] = True
    explicit = {name: value for name, value in given.items() if value is not None}
    if settings.include_usage is False:
        explicit["stream_options"] = None
    return explicit
