"""Images, documents, audio and video: Strands blocks to chat-completions parts and back.

Strands holds raw bytes with a short format name; chat-completions holds data URLs or links.
A link becomes a Strands `location` of type `url`.
"""

import base64
import binascii
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote_to_bytes, urlsplit

_DOCUMENT_TYPES = {
    "csv": "text/csv",
    "doc": "application/msword",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "html": "text/html",
    "md": "text/markdown",
    "pdf": "application/pdf",
    "txt": "text/plain",
    "xls": "application/vnd.ms-excel",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}
_DOCUMENT_FORMATS = {media_type: name for name, media_type in _DOCUMENT_TYPES.items()}
# What links without a telling suffix are taken for; the endpoint looks at the data anyway.
_DEFAULT_FORMATS = {"image": "png", "video": "mp4"}


def media_block(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return the Strands block of a chat-completions part that is no text.

    Raises:
        ValueError: the part is of an unknown type, or its data cannot be read.
    """
    match part.get("type"):
        case "image_url":
            return {"image": _from_url("image", _url(part["image_url"]))}
        case "input_image":
            return {"image": _from_url("image", _url(part["image_url"]))}
        case "video_url":
            return {"video": _from_url("video", _url(part["video_url"]))}
        case "input_audio":
            audio = part["input_audio"]
            data = _decode(audio["data"])
            return {"audio": {"format": audio["format"], "source": {"bytes": data}}}
        case "file":
            return {"document": _document(part["file"])}
        case kind:
            msg = f"a content part of type {kind!r} has no Strands form"
            raise ValueError(msg)


def media_part(kind: str, media: Mapping[str, Any]) -> dict[str, Any]:
    """Return the chat-completions part of a Strands image, document, audio or video block.

    Raises:
        ValueError: the block holds neither bytes nor a location with an address.
    """
    match kind:
        case "image":
            return {"type": "image_url", "image_url": {"url": _to_url(kind, media)}}
        case "video":
            return {"type": "video_url", "video_url": {"url": _to_url(kind, media)}}
        case "audio":
            data = base64.b64encode(_bytes(kind, media)).decode()
            return {"type": "input_audio", "input_audio": {"data": data, "format": media["format"]}}
        case _:
            media_type = _document_type(media)
            data = base64.b64encode(_bytes(kind, media)).decode()
            file = {"filename": _filename(media), "file_data": f"data:{media_type};base64,{data}"}
            return {"type": "file", "file": file}


def _url(value: str | Mapping[str, Any]) -> str:
    """Return the address of an `image_url`, given as text (Responses) or as an object."""
    return value if isinstance(value, str) else value["url"]


def _from_url(kind: str, url: str) -> dict[str, Any]:
    if url.startswith("data:"):
        media_type, data = _read_data_url(url)
        name = media_type.partition("/")[2]
        return {"format": "jpeg" if name == "jpg" else name, "source": {"bytes": data}}
    suffix = PurePosixPath(urlsplit(url).path).suffix.lstrip(".").lower()
    name = "jpeg" if suffix == "jpg" else suffix or _DEFAULT_FORMATS[kind]
    return {"format": name, "source": {"location": {"type": "url", "url": url}}}


def _to_url(kind: str, media: Mapping[str, Any]) -> str:
    location = media.get("source", {}).get("location")
    if location is not None:
        address = location.get("url") or location.get("uri")
        if address is None:
            msg = f"the location of {kind} content names no url"
            raise ValueError(msg)
        return str(address)
    data = base64.b64encode(_bytes(kind, media)).decode()
    return f"data:{kind}/{media['format']};base64,{data}"


def _bytes(kind: str, media: Mapping[str, Any]) -> bytes:
    data = media.get("source", {}).get("bytes")
    if not isinstance(data, bytes):
        msg = f"{kind} content holds no bytes that could be sent to the policy"
        raise ValueError(msg)
    return data


def _document(file: Mapping[str, Any]) -> dict[str, Any]:
    if "file_data" not in file:
        msg = "a file part needs file_data: the policy's endpoint knows no uploaded files"
        raise ValueError(msg)
    media_type, data = _read_data_url(file["file_data"])
    name = PurePosixPath(file.get("filename") or "document")
    suffix = name.suffix.lstrip(".").lower()
    kind = suffix if suffix in _DOCUMENT_TYPES else _DOCUMENT_FORMATS.get(media_type, "txt")
    return {"format": kind, "name": name.stem, "source": {"bytes": data}}


def _document_type(media: Mapping[str, Any]) -> str:
    return _DOCUMENT_TYPES.get(media.get("format", ""), "application/octet-stream")


def _filename(media: Mapping[str, Any]) -> str:
    return f"{media.get('name', 'document')}.{media.get('format', 'bin')}"


def _read_data_url(url: str) -> tuple[str, bytes]:
    """Return media type and data of a data URL (RFC 2397)."""
    head, _, body = url.removeprefix("data:").partition(",")
    media_type, *options = head.split(";")
    return media_type, _decode(body) if "base64" in options else unquote_to_bytes(body)


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        msg = f"the data of a content part is not valid base64: {error}"
        raise ValueError(msg) from None
