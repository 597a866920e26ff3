"""Chat messages as datasets, frameworks and endpoints spell them."""

from typing import Any

MessageDict = dict[str, Any]
"""One chat message; values may be of any type, since frameworks put their own data there."""

Messages = list[MessageDict]
"""A conversation, oldest message first."""
