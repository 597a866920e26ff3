"""Images and sounds: their bytes lie beside the document, which refers to them."""

import base64
import hashlib
from typing import Any

import pytest
from chats import convert

BYTES = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
BASE64 = base64.b64encode(BYTES).decode()
DIGEST = hashlib.sha256(BYTES).hexdigest()


def image_url(url: Any, **more: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url, **more}}


def stored(part: dict[str, Any], kind: str, media_type: str, path: str) -> None:
    """Check that a part becomes a reference to a file with the bytes."""
    files: dict[str, bytes] = {}
    (step,) = convert({"role": "user", "content": ["look", part]}, files=files).steps
    assert not isinstance(step.message, str)
    text, medium = [p.model_dump(exclude_none=True) for p in step.message]
    assert text == {"type": "text", "text": "look"}
    assert medium == {"type": kind, "source": {"media_type": media_type, "path": path}}
    assert files == {path: BYTES}


@pytest.mark.parametrize(
    "part",
    [
        image_url(f"data:image/png;base64,{BASE64}"),
        image_url(f"DATA:image/PNG;charset=x;base64,{BASE64}"),
        {"type": "image_url", "image_url": f"data:image/png;base64,{BASE64}"},
        {"type": "input_image", "image_url": f"data:image/png;base64,{BASE64}"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": BASE64}},
        {"image": {"format": "png", "source": {"bytes": BYTES}}},
    ],
    ids=["chat", "odd header", "plain", "responses", "anthropic", "strands"],
)
def test_b45_images_of_every_producer(part: dict[str, Any]) -> None:
    """The document holds a reference; the bytes are a file that is named by their digest."""
    stored(part, "image", "image/png", f"images/{DIGEST}.png")


@pytest.mark.parametrize(
    ("spelled", "media_type", "suffix"),
    [
        ("image/jpg", "image/jpeg", "jpg"),
        ("image/webp", "image/webp", "webp"),
        ("audio/x-wav", "audio/wav", "wav"),
    ],
)
def test_media_types_are_normalised(spelled: str, media_type: str, suffix: str) -> None:
    """Usual aliases lead to the registered type."""
    kind = media_type.partition("/")[0]
    folder = "images" if kind == "image" else "audio"
    stored(
        image_url(f"data:{spelled};base64,{BASE64}"),
        kind,
        media_type,
        f"{folder}/{DIGEST}.{suffix}",
    )


def test_sounds_need_version_1_8() -> None:
    """A document that holds a sound says so by its version."""
    part = {"type": "input_audio", "input_audio": {"data": BASE64, "format": "mp3"}}
    stored(part, "audio", "audio/mpeg", f"audio/{DIGEST}.mp3")
    trajectory = convert({"role": "tool", "content": [part]}, files={})
    assert trajectory.schema_version == "ATIF-v1.8"
    assert convert({"role": "user", "content": "a"}).schema_version == "ATIF-v1.7"


def test_urls_stay_where_they_are() -> None:
    """The type is the suffix's; the rest of the part goes to `extra`."""
    part = image_url("https://example.com/a/b.JPEG?size=1", detail="high")
    (step,) = convert({"role": "user", "content": [part]}).steps
    assert not isinstance(step.message, str)
    assert step.message[0].model_dump(exclude_none=True)["source"] == {
        "media_type": "image/jpeg",
        "path": "https://example.com/a/b.JPEG?size=1",
    }
    assert step.extra == {"content_parts": [{"index": 0, "detail": "high"}]}


def test_sounds_by_url() -> None:
    """Endpoints take them beside `input_audio`."""
    url = "https://example.com/a.mp3"
    trajectory = convert(
        {"role": "user", "content": [{"type": "audio_url", "audio_url": {"url": url}}]}
    )
    message = trajectory.steps[0].message
    assert not isinstance(message, str)
    source = {"media_type": "audio/mpeg", "path": url}
    assert message[0].model_dump(exclude_none=True) == {"type": "audio", "source": source}
    assert trajectory.schema_version == "ATIF-v1.8"


@pytest.mark.parametrize(
    ("part", "told"),
    [
        (image_url("https://example.com/a"), "https://example.com/a"),
        (image_url("file:///etc/passwd.png"), "file:///etc/passwd.png"),
        (image_url("http://[broken/a.png"), "http://[broken/a.png"),
        (image_url("data:image/png"), "data:image/png"),
        (image_url("data:image/png;base64,?"), "<image/png, "),
        (image_url(None), "image_url"),
        ({"type": "tool", "source": "https://example.com/a.png"}, "https://example.com/a.png"),
    ],
)
def test_what_is_no_medium_becomes_text(part: dict[str, Any], told: str) -> None:
    """It is told as JSON."""
    files: dict[str, bytes] = {}
    (step,) = convert({"role": "user", "content": [part]}, files=files).steps
    assert isinstance(step.message, str)
    assert told in step.message
    assert not files


PDF = {"type": "base64", "media_type": "application/pdf", "data": BASE64}
FILE = {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{BASE64}"}


@pytest.mark.parametrize(
    ("part", "kind", "suffix"),
    [
        ({"type": "file", "file": FILE}, "application/pdf", "pdf"),
        ({"type": "input_file", **FILE}, "application/pdf", "pdf"),
        ({"type": "input_file", "filename": "a.pdf", "file_data": BASE64}, "", "bin"),
        ({"type": "document", "title": "t", "source": PDF}, "application/pdf", "pdf"),
        ({"document": {"format": "pdf", "name": "t", "source": {"bytes": BYTES}}}, "", "bin"),
        (image_url(f"data:image/bmp;base64,{BASE64}"), "image/bmp", "bmp"),
        (
            {"type": "input_audio", "input_audio": {"data": BASE64, "format": "g722"}},
            "g722",
            "g722",
        ),
        (
            {"type": "video_url", "video_url": {"url": f"data:video/mp4;base64,{BASE64}"}},
            "video/mp4",
            "mp4",
        ),
        ({"text": "caption", "image_url": f"data:text/plain;base64,{BASE64}"}, "text/plain", "txt"),
    ],
    ids=["chat", "responses", "bare", "anthropic", "strands", "image", "sound", "video", "beside"],
)
def test_b45_documents_of_every_producer(part: dict[str, Any], kind: str, suffix: str) -> None:
    """What ATIF has no part for lies in a file too, which a note of kind and size refers to."""
    files: dict[str, bytes] = {}
    message = {"role": "tool", "tool_call_id": "x", "content": [part]}
    (step,) = convert(message, files=files).steps
    path = f"attachments/{DIGEST}.{suffix}"
    note = f"<{kind}, {len(BYTES)} bytes: {path}>" if kind else f"<{len(BYTES)} bytes: {path}>"
    assert step.observation is not None
    assert note in str(step.observation.results)
    assert BASE64 not in str(step.observation.results)
    assert files == {path: BYTES}


def test_without_a_place_for_files_a_note_stands_for_the_bytes() -> None:
    """A document alone never holds megabytes, nor a reference to nowhere."""
    part = image_url(f"data:image/png;base64,{BASE64}")
    (step,) = convert({"role": "user", "content": [part]}).steps
    assert step.message == f"<image/png, {len(BYTES)} bytes>"
