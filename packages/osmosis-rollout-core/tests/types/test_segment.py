"""Ids that become one name in a path."""

import os
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from osmosis_ai.rollout import ExecutionRequest, RolloutInitRequest
from osmosis_ai.rollout.types import PathSegment, check_path_segment

SEGMENT = TypeAdapter[str](PathSegment)

BAD = [
    "../x",
    "a/b",
    "/a",
    "a/",
    "a\\b",
    ".",
    "..",
    "",
    "\x00",
    "x\x00.json",
    "a\n",
    "\x1b[0m",
    "\x85",
    "x" * 256,
    "é" * 128,
    "\u2024\u2024/x",
    "\ud83d",
    ".server",
    ".server-state",
]

GOOD = [
    "r-1",
    "%2e%2e%2f",
    "%2e",
    "C:x",
    "~",
    "~root",
    "...",
    ".hidden",
    "..a",
    "\u2024\u2024",
    "x" * 255,
    "é" * 127,
    "a b",
    " ",
    "server",
    "-rf",
    "日本",
]


@pytest.mark.parametrize("value", BAD)
def test_b12_a_bad_id_is_refused_everywhere_and_not_repeated(value: str) -> None:
    with pytest.raises(ValueError, match="one plain path segment") as caught:
        check_path_segment(value)
    assert len(value) < 3 or value == ".server" or value not in str(caught.value)
    with pytest.raises(ValidationError):
        ExecutionRequest(id=value, prompt=[])
    with pytest.raises(ValidationError):
        RolloutInitRequest(
            initial_messages=[], chat_completions_url="http://x.test/v1", rollout_id=value
        )


@pytest.mark.parametrize("value", GOOD)
def test_b12_ordinary_names_are_kept_literally(value: str) -> None:
    assert check_path_segment(value) == value
    assert ExecutionRequest(id=value, prompt=[]).id == value


@pytest.mark.parametrize("value", [None, 5, ["r-1"]])
def test_an_id_is_text(value: object) -> None:
    with pytest.raises(ValidationError):
        SEGMENT.validate_python(value)


@given(value=st.text(st.characters() | st.sampled_from("./\\%~:\x00\n"), max_size=300))
def test_what_passes_is_one_entry_of_its_directory(value: str) -> None:
    try:
        segment = SEGMENT.validate_python(value)
    except ValidationError:
        return
    assert segment == value == os.path.basename(value)
    path = Path("/top/dir") / segment
    assert path.parent == Path("/top/dir")
    assert os.path.normpath(path) == str(path)
    assert len(os.fsencode(segment)) <= 255
    assert not any(unicodedata.category(char) == "Cc" for char in segment)


@given(value=st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=60))
def test_any_other_name_passes(value: str) -> None:
    if value in {".", ".."} or value.startswith(".server") or set(value) & {"/", "\\"}:
        return
    assert check_path_segment(value) == value
