"""Bytes in messages that are no part of ATIF: kept in files, and noted where they were."""

import hashlib
import re
from typing import Any, Final, cast

from osmosis_ai.rollout.trajectory._json import JsonObject, clean, size_note
from osmosis_ai.rollout.trajectory._media import MediaFiles, decode_base64, read_data_url

_FOLDER: Final = "attachments"
# Of media types and formats; what tells nothing to programs is none.
_SUFFIX: Final = re.compile("[a-z0-9]{1,8}")
_SUFFIXES: Final = {"plain": "txt", "markdown": "md", "quicktime": "mov"}


def with_references(value: object, files: MediaFiles | None) -> Any:
    """Return a cleaned copy of a value, with its bytes in `files` and notes in their places.

    Known are bytes, data URLs, and what chat completions (`file_data`, `input_audio`) and
    Anthropic (`source`) have as base64. A note tells kind, size and the file's path; without
    `files` there is no path.
    """
    return _replaced(clean(value, lambda data: _keep(data, "", files)), files)


def _replaced(value: Any, files: MediaFiles | None) -> Any:
    if isinstance(value, str):
        return _from_data_url(value, files) if value[:5].lower() == "data:" else value
    if isinstance(value, list):
        return [_replaced(item, files) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        members = cast("JsonObject", value)
        encoded = _base64_members(members)
        return {
            key: _from_base64(item, encoded[key], files)
            if key in encoded and isinstance(item, str)
            else _replaced(item, files)
            for key, item in members.items()
        }
    return value


def _base64_members(members: JsonObject) -> dict[str, str]:
    """Return the members that hold base64, each with the kind of what it holds."""
    match members:
        case {"type": "base64", "data": str()}:
            return {"data": str(members.get("media_type", ""))}
        case {"data": str(), "format": str(kind)}:
            return {"data": kind}
        case {"file_data": str(data)} if not data.startswith("data:"):
            return {"file_data": ""}
        case _:
            return {}


def _from_base64(text: str, kind: str, files: MediaFiles | None) -> str:
    data = decode_base64(text)
    return text if data is None else _keep(data, kind, files)


def _from_data_url(url: str, files: MediaFiles | None) -> str:
    medium = read_data_url(url)
    if medium is not None and medium.data is not None:
        return _keep(medium.data, medium.media_type, files)
    header, comma, _ = url.partition(",")
    # Nobody can read it, but it may be as long as if somebody could.
    return size_note(len(url), header[5:].partition(";")[0]) if comma else url


def _keep(data: bytes, kind: str, files: MediaFiles | None) -> str:
    if files is None or not data:
        return size_note(len(data), kind)
    name = kind.lower().rpartition("/")[2]
    suffix = _SUFFIXES.get(name, name if _SUFFIX.fullmatch(name) else "bin")
    path = f"{_FOLDER}/{hashlib.sha256(data).hexdigest()}.{suffix}"
    files[path] = data
    return size_note(len(data), kind, path)
