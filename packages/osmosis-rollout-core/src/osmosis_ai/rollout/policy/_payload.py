"""The body of a request to the policy."""

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from osmosis_ai.rollout.policy._reply import ANNOTATION_KEYS
from osmosis_ai.rollout.policy._values import as_array, as_object
from osmosis_ai.rollout.types.json_safety import json_safe

MODEL_NAME: Final = "osmosis-rollout"
"""The model that is asked for: the endpoint serves whatever the current policy is."""

# From here on encoding takes milliseconds that the other rollouts on the loop should not wait.
_OFF_LOOP_CHARS: Final = 256 * 1024
_CHARS_PER_MESSAGE: Final = 100
# `json.dumps` would build one for each message.
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


async def encode_request(
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None,
    params: Mapping[str, Any],
) -> bytes:
    """Return the JSON of a streaming request; large conversations are encoded off the loop.

    Values that JSON cannot hold are replaced in the copy that is sent: lone surrogates by U+FFFD,
    non-finite numbers by null, others by a note.

    Raises:
        ValueError: a parameter or a tool holds a value that JSON cannot hold, or asks for several
            answers or for none of the stream.
    """
    settings = _settings(tools, params)
    if _rough_size(messages) < _OFF_LOOP_CHARS:
        return _encode(messages, settings)
    # Message by message, so that the loop gets its turn at the interpreter in between.
    return await asyncio.to_thread(_encode, messages, settings)


def _settings(
    tools: Sequence[Mapping[str, Any]] | None, params: Mapping[str, Any]
) -> dict[str, Any]:
    if params.get("n") not in (None, 1):
        msg = "n must be 1: one call is one sample of the policy, so call again for another"
        raise ValueError(msg)
    if params.get("stream") not in (None, True):
        msg = "stream cannot be turned off: the endpoint only streams, and complete() assembles"
        raise ValueError(msg)
    settings = {"model": MODEL_NAME, "stream_options": {"include_usage": True}, **params}
    if settings["stream_options"] is None:
        del settings["stream_options"]
    if tools:
        settings["tools"] = tools
    return {**settings, "stream": True}


def _encode(messages: Sequence[Mapping[str, Any]], settings: dict[str, Any]) -> bytes:
    head = _dump_settings(settings)
    body = b",".join(_dump_message(message) for message in messages)
    return b'%s,"messages":[%s]}' % (head[:-1], body)


def _dump_settings(settings: dict[str, Any]) -> bytes:
    try:
        return _dump(settings)
    except (TypeError, ValueError, RecursionError):
        safe, bad = json_safe(settings, on_bad="replace")
    if bad:
        wrong = [key for key, value in settings.items() if json_safe(value, on_bad="drop")[1]]
        msg = f"cannot be sent as JSON (finite numbers and plain values only): {', '.join(wrong)}"
        raise ValueError(msg)
    return _dump(safe)


def _dump_message(message: Mapping[str, Any]) -> bytes:
    if message.get("role") == "assistant" and not ANNOTATION_KEYS.isdisjoint(message):
        message = {key: value for key, value in message.items() if key not in ANNOTATION_KEYS}
    try:
        return _dump(message)
    except (TypeError, ValueError, RecursionError):
        return _dump(json_safe(message, on_bad="replace")[0])


def _dump(value: object) -> bytes:
    return _ENCODER.encode(value).encode()


def _rough_size(messages: Sequence[Mapping[str, Any]]) -> int:
    texts = sum(len(text) for message in messages for text in _texts(message.get("content")))
    return texts + _CHARS_PER_MESSAGE * len(messages)


def _texts(content: object) -> Iterable[str]:
    if isinstance(content, str):
        yield content
    for part in map(as_object, as_array(content)):
        for text in (part.get("text"), as_object(part.get("image_url")).get("url")):
            if isinstance(text, str):
                yield text
