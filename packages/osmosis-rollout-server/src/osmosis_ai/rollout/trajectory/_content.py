"""Message content in the shapes that people use, as ATIF text or content parts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from osmosis_ai.rollout.trajectory._attachments import with_references
from osmosis_ai.rollout.trajectory._json import JsonObject, compact_json, text_of
from osmosis_ai.rollout.trajectory._media import (
    MediaFiles,
    beside_medium,
    find_medium,
    media_part,
)
from osmosis_ai.rollout.types.json_safety import clean_text

_TEXT_TYPES: Final = frozenset({None, "text", "output_text", "input_text"})


@dataclass(slots=True)
class Content:
    """A message's content.

    Attributes:
        message: Text, or ATIF content parts when there is more than text.
        beside: What the parts said besides their text or medium, with the `index` of each part.
    """

    message: str | list[JsonObject]
    beside: list[JsonObject] = field(default_factory=list[JsonObject])

    @property
    def has_audio(self) -> bool:
        """Whether a part is a sound."""
        return isinstance(self.message, list) and any(
            part["type"] == "audio" for part in self.message
        )


def read_content(content: object, files: MediaFiles | None) -> Content:
    """Turn a message's `content`, as it is or cleaned, into ATIF's form.

    Texts are joined by newlines; images and sounds make content parts of it all, their bytes put
    into `files`. What is neither is kept as compact JSON text, bytes in it likewise in `files`.
    """
    if content is None:
        return Content("")
    if isinstance(content, str):
        return Content(clean_text(content))
    if isinstance(content, Mapping):
        content = [cast("Mapping[Any, Any]", content)]
    if not isinstance(content, list | tuple):
        return Content(text_of(content))
    beside: list[JsonObject] = []
    parts: list[JsonObject] = []
    for index, raw in enumerate(cast("list[object]", content)):
        part, said = _read_part(raw, files)
        parts.append(part)
        if said:
            beside.append({"index": index, **said})
    if all(part["type"] == "text" for part in parts):
        return Content("\n".join(part["text"] for part in parts), beside)
    return Content(parts, beside)


def _read_part(raw: object, files: MediaFiles | None) -> tuple[JsonObject, JsonObject]:
    if isinstance(raw, str):
        return _text_part(clean_text(raw)), {}
    if not isinstance(raw, Mapping):
        return _text_part(text_of(raw)), {}
    part = cast("Mapping[Any, Any]", raw)
    text = part.get("text")
    if isinstance(text, str) and _has_text_type(part):
        beside = {key: value for key, value in part.items() if key not in {"type", "text"}}
        return _text_part(clean_text(text)), _said(beside, files)
    if (medium := find_medium(part)) is not None:
        return media_part(medium, files), _said(beside_medium(part), files)
    return _text_part(compact_json(with_references(part, files))), {}


def _said(beside: Mapping[Any, Any], files: MediaFiles | None) -> JsonObject:
    said = {key: value for key, value in beside.items() if value is not None}
    return cast("JsonObject", with_references(said, files))


def _has_text_type(part: Mapping[Any, Any]) -> bool:
    kind = part.get("type")
    return kind is None or (isinstance(kind, str) and kind in _TEXT_TYPES)


def _text_part(text: str) -> JsonObject:
    return {"type": "text", "text": text}
