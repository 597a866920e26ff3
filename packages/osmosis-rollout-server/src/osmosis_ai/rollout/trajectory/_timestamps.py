"""When a message came, as the many producers of chat messages spell it."""

from datetime import UTC, datetime
from typing import Final

from osmosis_ai.rollout.trajectory._json import JsonObject, as_object, is_figure

# Seconds reach this in the year 5138, milliseconds passed it in 1973.
_MILLISECONDS_FROM: Final = 1e11
# A date alone says nothing about the time of day.
_SHORTEST_ISO: Final = len("20260101T00")

_OWN_KEYS = ("created_at", "timestamp", "completed_at")
# What chat-completions endpoints put on a whole response.
_ENDPOINT_KEY = "created"
_KEYS = frozenset({*_OWN_KEYS, "extra", _ENDPOINT_KEY})


def iso_timestamp(value: object) -> str | None:
    """Return epoch seconds, epoch milliseconds or an ISO 8601 text as ISO 8601, or None.

    Numbers become UTC. A text keeps its offset, or its lack of one.
    """
    try:
        if isinstance(value, str):
            return _iso(datetime.fromisoformat(value)) if len(value) >= _SHORTEST_ISO else None
        if not is_figure(value) or value <= 0:
            return None
        seconds = value / 1000 if value >= _MILLISECONDS_FROM else value
        return _iso(datetime.fromtimestamp(seconds, UTC))
    except (ValueError, OverflowError, OSError):
        return None


def _iso(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


def take_timestamp(fields: JsonObject) -> str | None:
    """Remove the first usable time from a cleaned message's `fields` and return it as ISO 8601."""
    if fields.keys().isdisjoint(_KEYS):
        return None
    for key in _OWN_KEYS:
        if key in fields and (stamp := iso_timestamp(fields[key])):
            del fields[key]
            return stamp
    inner = as_object(fields.get("extra"))
    if inner and (stamp := iso_timestamp(inner.get("timestamp"))):
        return stamp
    if stamp := iso_timestamp(fields.get(_ENDPOINT_KEY)):
        del fields[_ENDPOINT_KEY]
    return stamp
