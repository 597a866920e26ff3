"""Who made a trajectory, and with which tools."""

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from osmosis_ai.rollout.trajectory._json import JsonObject, as_list, as_object, clean, present

AGENT_NAME: Final = "osmosis-rollout-sdk"
_DISTRIBUTION: Final = "osmosis-rollout-server"
# Where the integrations put the tools that their agent had: on the first message.
_TOOL_DEFINITIONS: Final = "tool_definitions"


def describe_agent(
    tools: list[JsonObject] | None, *, name: str = AGENT_NAME, model_name: str | None = None
) -> JsonObject:
    """Return an ATIF agent object; its version is this distribution's."""
    return present(
        name=name, version=_version(), model_name=clean(model_name), tool_definitions=tools
    )


def split_tools(
    messages: Sequence[Mapping[str, Any]],
) -> tuple[list[JsonObject] | None, Sequence[Mapping[str, Any]]]:
    """Return the tool definitions that the first message carries, and the messages without them."""
    first, *others = messages
    tools = as_list(clean(first.get(_TOOL_DEFINITIONS))) or []
    objects = [tool for tool in map(as_object, tools) if tool is not None]
    if not objects or len(objects) < len(tools):
        return None, messages
    bare = {key: value for key, value in first.items() if key != _TOOL_DEFINITIONS}
    return objects, [bare, *others]


@cache
def _version() -> str:
    try:
        return version(_DISTRIBUTION)
    except PackageNotFoundError:  # the sources run without an installation
        return "unknown"
