"""Datasets: what a file's lines mean, and how precisely a bad one is named."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osmosis_ai.rollout.eval import DatasetError, DatasetRow, read_dataset, scan_dataset

GOOD = {"user_prompt": "2+2?", "ground_truth": "4"}


def rows_of(tmp_path: Path, content: bytes | str) -> list[DatasetRow]:
    path = tmp_path / "data.jsonl"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return list(read_dataset(path))


def row_of(tmp_path: Path, **fields: Any) -> DatasetRow:
    [row] = rows_of(tmp_path, json.dumps(fields))
    return row


def error_of(tmp_path: Path, content: bytes | str) -> DatasetError:
    with pytest.raises(DatasetError) as caught:
        rows_of(tmp_path, content)
    assert "data.jsonl" in str(caught.value)
    return caught.value


def test_prompts_and_label(tmp_path: Path) -> None:
    """System and user prompt become messages, the ground truth the label; the rest is ignored."""
    row = row_of(tmp_path, system_prompt="Be brief.", **GOOD, note="x")
    assert row.prompt == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "2+2?"},
    ]
    assert (row.label, row.metadata, row.index, row.line) == ("4", None, 0, 1)


def test_b58_only_newlines_end_lines(tmp_path: Path) -> None:
    """Every other line separator is data, at any place, and survives."""
    odd = "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg"
    record = json.dumps({**GOOD, "user_prompt": odd}, ensure_ascii=False)
    rows = rows_of(tmp_path, f"\ufeff{record}\r\n\n  \n{record}")
    assert [(row.index, row.line) for row in rows] == [(0, 1), (1, 4)]
    assert {row.prompt[0]["content"] for row in rows} == {odd}


@given(text=st.text(min_size=1).filter(lambda text: text.strip()))
def test_b58_any_text_survives(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    """Whatever JSON text a prompt holds, it is read back as it was."""
    line = json.dumps({**GOOD, "user_prompt": text}, ensure_ascii=False)
    [row] = rows_of(tmp_path_factory.mktemp("data"), line)
    assert row.prompt == [{"role": "user", "content": text}]


@pytest.mark.parametrize(
    ("line", "column", "problem"),
    [
        (b"<PLACEHOLDER ROW>", 1, "not JSON"),
        (b'{"user_prompt": "x"', 20, "not JSON"),
        (b'{"a": "NaN", "b": NaN}', 19, "NaN is not JSON"),
        (b'{"b": -Infinity}', 7, "-Infinity is not JSON"),
        (b'{"b": [1e999]}', 8, "too large"),
        (b'{"b": "\\ud83d"}', 8, "surrogate"),
        (b'{"b": "\xff"}', 8, "not UTF-8"),
        (b'{"b": 1, "b": 2}', 2, "'b' comes twice"),
        (b'{"m": {"k": 1, "k": 2}}', 8, "'k' comes twice"),
        (b"[" * 100_000, 1, "nested too deeply"),
        (b'{"n": ' + b"9" * 5000 + b"}", 1, "too many digits"),
        (b"[1]", 1, "must be a JSON object, not a list"),
        (b"null", 1, "must be a JSON object, not null"),
    ],
)
def test_b58_bad_lines_are_named(tmp_path: Path, line: bytes, column: int, problem: str) -> None:
    """The error names file, line and column."""
    error = error_of(tmp_path, json.dumps(GOOD).encode() + b"\n\n" + line + b"\n")
    assert (error.line, error.column) == (3, column)
    assert problem in error.problem


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xef\xbb\xbf", b" \r\n"])
def test_b58_a_file_without_rows_is_an_error(tmp_path: Path, content: bytes) -> None:
    """An empty file is a mistake, not an evaluation of nothing."""
    assert error_of(tmp_path, content).problem == "the file has no rows"


@pytest.mark.parametrize(
    ("value", "label"),
    [
        (0, "0"),
        (0.0, "0.0"),
        (False, "False"),
        (True, "True"),
        (-12, "-12"),
        (2.5, "2.5"),
        ("nan", "nan"),
        (" 4 ", " 4 "),
    ],
)
def test_b61_answers_that_are_answers(tmp_path: Path, value: Any, label: str) -> None:
    """0 and False are answers; numbers become text; text stays as it is."""
    assert row_of(tmp_path, user_prompt="x", ground_truth=value).label == label


@pytest.mark.parametrize("missing", ["", " ", "\n", None])
def test_b61_blank_answers_are_missing(tmp_path: Path, missing: str | None) -> None:
    """A blank ground truth gives way to the label; with neither, the row is refused by name."""
    assert row_of(tmp_path, user_prompt="x", ground_truth=missing, label=0).label == "0"
    error = error_of(tmp_path, json.dumps({"user_prompt": "x", "ground_truth": missing}))
    assert (error.line, error.column) == (1, "ground_truth")


def test_b61_ground_truth_wins_over_label(tmp_path: Path) -> None:
    """Where both are given, the ground truth is the label."""
    assert row_of(tmp_path, user_prompt="x", ground_truth=0, label="9").label == "0"


@pytest.mark.parametrize(
    ("fields", "column"),
    [
        ({**GOOD, "ground_truth": ["4"]}, "ground_truth"),
        ({**GOOD, "ground_truth": {"a": 1}}, "ground_truth"),
        ({"user_prompt": "x", "label": []}, "label"),
        ({**GOOD, "user_prompt": 5}, "user_prompt"),
        ({**GOOD, "system_prompt": ["x"]}, "system_prompt"),
        ({**GOOD, "metadata": "null"}, "metadata"),
        ({**GOOD, "metadata": "[]"}, "metadata"),
        ({**GOOD, "metadata": '"{\\"a\\":1}"'}, "metadata"),
        ({**GOOD, "metadata": "{a: 1}"}, "metadata"),
        ({**GOOD, "metadata": '{"a": NaN}'}, "metadata"),
        ({**GOOD, "metadata": 5}, "metadata"),
        ({**GOOD, "metadata": []}, "metadata"),
        ({"metadata": None, "ground_truth": "4"}, "user_prompt"),
        ({"metadata": " "}, "user_prompt"),
        ({}, "user_prompt"),
    ],
)
def test_b61_unusable_values_are_named(tmp_path: Path, fields: dict[str, Any], column: str) -> None:
    """The error names the row and the column, and does not repeat the value."""
    error = error_of(tmp_path, json.dumps(GOOD) + "\n" + json.dumps(fields))
    assert (error.line, error.column) == (2, column)


@pytest.mark.parametrize("metadata", [{"a": 1, "b": None}, '{"a": 1, "b": null}'])
def test_b61_metadata_is_an_object_or_its_json(tmp_path: Path, metadata: Any) -> None:
    """With metadata, prompts and label are optional."""
    row = row_of(tmp_path, metadata=metadata)
    assert (row.prompt, row.label, row.metadata) == ([], None, {"a": 1, "b": None})


def test_b61_rows_may_differ(tmp_path: Path) -> None:
    """Each row is judged by what it holds itself, so ragged files work."""
    rows = rows_of(
        tmp_path,
        "\n".join([json.dumps(GOOD), '{"metadata": {}}', json.dumps({**GOOD, "metadata": ""})]),
    )
    assert [row.metadata for row in rows] == [None, {}, None]


def test_f10_f12_foreign_columns_are_named(tmp_path: Path) -> None:
    """A file of another system is refused at its first row, with the columns that it has."""
    foreign: dict[str, Any] = {"responses_create_params": {"input": []}, "expected_answer": "3"}
    error = error_of(tmp_path, json.dumps(foreign) + "\n")
    assert error.line == 1
    assert "'responses_create_params', 'expected_answer'" in error.problem


def test_f12_an_empty_system_prompt_is_no_message(tmp_path: Path) -> None:
    """Chat templates treat an empty system message differently from none; none is meant."""
    assert row_of(tmp_path, system_prompt="", **GOOD).prompt == [
        {"role": "user", "content": "2+2?"}
    ]


FILES = Path(__file__).parent / "files"


def test_f09_f10_f12_every_row_is_told() -> None:
    """Real files of another system: `scan_dataset` names every row, and what is wrong with it."""
    for name, problem in {
        "F09_jsonl_placeholder_rows.jsonl": "not JSON",
        "F10_prompts_ragged_keys.jsonl": "'responses_create_params', 'expected_answer'",
        "F12_prompts_empty_system.jsonl": "'responses_create_params', 'verifier_metadata'",
    }.items():
        faults = list(scan_dataset(FILES / name))
        assert all(isinstance(fault, DatasetError) and problem in str(fault) for fault in faults)
        assert {fault.row for fault in faults if isinstance(fault, DatasetError)} == set(range(5))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """The file and the reason are named."""
    with pytest.raises(DatasetError, match=r"gone\.jsonl: cannot be read: No such file"):
        next(read_dataset(tmp_path / "gone.jsonl"))
    folder = tmp_path / "folder.jsonl"
    folder.mkdir()
    with pytest.raises(DatasetError, match="cannot be read"):
        next(read_dataset(folder))
    with pytest.raises(DatasetError, match=r"data\.txt: a dataset's name must end in"):
        next(read_dataset(tmp_path / "data.txt"))


def test_rows_are_streamed(tmp_path: Path) -> None:
    """A bad line does not keep the rows before it from being read."""
    path = tmp_path / "data.jsonl"
    path.write_text(json.dumps(GOOD) + "\noops\n")
    rows = read_dataset(path)
    assert next(rows).label == "4"
    with pytest.raises(DatasetError, match="line 2"):
        next(rows)
