"""Images and sounds in messages: found in the producers' shapes, kept in files of their own."""

import base64
import binascii
import hashlib
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final, cast
from urllib.parse import unquote_to_bytes, urlsplit

from osmosis_ai.rollout.trajectory._json import JsonObject, size_note
from osmosis_ai.rollout.trajectory._models import canonical_audio_type
from osmosis_ai.rollout.types.json_safety import clean_text

type MediaFiles = MutableMapping[str, bytes]
"""The content of files beside a document, by their path relative to it."""

# The media types that ATIF knows, and the suffix of a file of each.
_SUFFIXES: Final = {
    "image/jpeg": "jpg",
    "image/png": "png",
    "image/gif": "gif",
    "image/webp": "webp",
    "audio/wav": "wav",
    "audio/mpeg": "mp3",
    "audio/mp4": "m4a",
    "audio/aac": "aac",
    "audio/ogg": "ogg",
    "audio/flac": "flac",
    "audio/webm": "weba",
    "audio/aiff": "aiff",
}
_TYPES: Final = {
    "jpeg": "image/jpeg",
    "oga": "audio/ogg",
    "aif": "audio/aiff",
    **{suffix: media_type for media_type, suffix in _SUFFIXES.items()},
}
# Where a part holds its image or sound, by producer.
_URLS: Final = ("image_url", "audio_url")
_PLACES: Final = (*_URLS, "input_audio", "source", "image")


@dataclass(frozen=True, slots=True)
class Medium:
    """An image or a sound as a message gives it: its bytes, or the URL where it lies."""

    media_type: str
    data: bytes | None = None
    url: str = ""


def suffix_of(media_type: str) -> str:
    """Return the suffix, without a dot, of files of a media type that ATIF knows."""
    return _SUFFIXES[media_type]


def find_medium(part: Mapping[Any, Any]) -> Medium | None:
    """Read the image or sound out of a content part; None when it holds none that ATIF knows.

    Known are chat completions' `image_url`, `audio_url` and `input_audio`, Responses'
    `input_image`, Anthropic's `source` and Strands' `image` blocks.
    """
    key = next((key for key in _PLACES if key in part), "")
    place = part.get(key)
    if isinstance(place, str) and key in _URLS:
        medium = _from_url(place)
    elif isinstance(place, Mapping):
        medium = _from_source(
            cast("Mapping[Any, Any]", place), "audio" if "input_audio" in part else "image"
        )
    else:
        return None
    return medium if medium is not None and medium.media_type in _SUFFIXES else None


def beside_medium(part: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return what a part with a medium says besides it, such as `detail`."""
    beside = {key: value for key, value in part.items() if key not in {"type", *_PLACES}}
    for place in (part.get(key) for key in _URLS):
        if isinstance(place, Mapping):
            inner = cast("Mapping[Any, Any]", place)
            beside |= {key: value for key, value in inner.items() if key != "url"}
    return beside


def media_part(medium: Medium, files: MediaFiles | None) -> JsonObject:
    """Return the ATIF content part for `medium`, its bytes put into `files`.

    Without `files` the bytes have no place, and a text part notes their size.
    """
    kind = medium.media_type.partition("/")[0]
    path = medium.url
    if medium.data is not None:
        if files is None:
            return {"type": "text", "text": size_note(len(medium.data), medium.media_type)}
        folder = "images" if kind == "image" else "audio"
        digest = hashlib.sha256(medium.data).hexdigest()
        path = f"{folder}/{digest}.{_SUFFIXES[medium.media_type]}"
        files[path] = medium.data
    return {"type": kind, "source": {"media_type": medium.media_type, "path": path}}


def _from_source(source: Mapping[Any, Any], kind: str) -> Medium | None:
    if isinstance(url := source.get("url"), str):
        return _from_url(url)
    media_type = source.get("media_type") or f"{kind}/{source.get('format')}"
    nested = source.get("source")
    data = cast("Mapping[Any, Any]", nested).get("bytes") if isinstance(nested, Mapping) else None
    data = source.get("data") if data is None else data
    if isinstance(data, str):
        data = decode_base64(data)
    return (
        Medium(_known_type(media_type), bytes(data))
        if isinstance(data, bytes | bytearray)
        else None
    )


def _from_url(url: str) -> Medium | None:
    if url[:5].lower() == "data:":
        return read_data_url(url)
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    if parts.scheme not in {"http", "https"} or not parts.netloc:
        return None
    suffix = PurePosixPath(parts.path).suffix.lower().removeprefix(".")
    return Medium(_TYPES.get(suffix, ""), url=clean_text(url))


def read_data_url(url: str) -> Medium | None:
    """Read a data URL (RFC 2397) of any kind; None when it cannot be read."""
    header, comma, body = url[len("data:") :].partition(",")
    media_type, *parameters = header.split(";")
    if not comma:
        return None
    encoded = any(parameter.strip().lower() == "base64" for parameter in parameters)
    data = decode_base64(body) if encoded else unquote_to_bytes(clean_text(body))
    return None if data is None else Medium(_known_type(media_type), data)


def _known_type(spelled: object) -> str:
    canonical = canonical_audio_type(str(spelled))
    return "image/jpeg" if canonical == "image/jpg" else str(canonical)


def decode_base64(text: str) -> bytes | None:
    """Return the bytes of a text in base64; None when it is something else."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
