"""What a server says when it gives no answer, in the shapes in which servers say it."""

import json
import re
from http import HTTPStatus
from typing import Any, Final

from osmosis_ai.rollout.policy._values import as_array, as_object

MAX_MESSAGE: Final = 1000
"""How much of a server's message an error repeats, in characters."""

_MARKUP = re.compile(rb"(?is)<(script|style|head)\b.*?</\1>|<[^>]*>")


def refusal_message(status: int, body: bytes) -> str:
    """Return the server's own message out of an error's body, or the status's usual meaning."""
    try:
        message = message_in(json.loads(body))
    except (ValueError, RecursionError):
        import html  # its table of entities is not worth loading before

        message = html.unescape(_MARKUP.sub(b" ", body).decode(errors="replace"))
    if message := message.strip():
        return message
    try:
        return f"{HTTPStatus(status).phrase} (it sent no message)"
    except ValueError:
        return "it sent no message"


def message_in(payload: object) -> str:
    """Return the message in an error's JSON: OpenAI's shape, FastAPI's, plain text, or any other.

    Of FastAPI's list of problems only the places and the texts are used: it repeats the input.
    """
    if isinstance(payload, str):
        return payload
    fields = as_object(payload)
    for key in ("error", "message", "detail"):
        value: Any = fields.get(key)
        if problems := as_array(value):
            return "; ".join(_problem(item) for item in problems)
        if value:
            return message_in(value)
    return json.dumps(payload, ensure_ascii=False) if payload else ""


def status_in(payload: object) -> int | None:
    """Return the HTTP status that an error inside a stream names, for want of a real one."""
    fields = as_object(payload)
    error = as_object(fields.get("error")) or fields
    for value in (error.get("code"), error.get("status"), error.get("status_code")):
        if isinstance(value, int) and 400 <= value < 600:
            return value
    return None


def bounded(message: str) -> str:
    """Return the message on one line, cut to a length that logs can take."""
    line = " ".join(message.split())
    return line if len(line) <= MAX_MESSAGE else f"{line[:MAX_MESSAGE]}..."


def _problem(item: object) -> str:
    fields = as_object(item)
    place = ".".join(str(step) for step in as_array(fields.get("loc")))
    text = str(fields.get("msg", "")) if fields else str(item)
    return f"{place}: {text}" if place else text
