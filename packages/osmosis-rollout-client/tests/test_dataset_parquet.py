"""Parquet datasets: which cells are JSON, and what Arrow made up."""

import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from osmosis_ai.rollout.eval import DatasetError, DatasetRow, EvalError, scan_dataset

pa: Any = pytest.importorskip("pyarrow")
pq: Any = pytest.importorskip("pyarrow.parquet")


def scan(tmp_path: Path, columns: Any, **options: Any) -> list[DatasetRow | DatasetError]:
    path = tmp_path / "data.parquet"
    table = pa.table(columns) if isinstance(columns, dict) else columns
    pq.write_table(table, path, **options)
    return list(scan_dataset(path))


def rows_of(tmp_path: Path, columns: Any) -> list[DatasetRow]:
    return [item for item in scan(tmp_path, columns) if isinstance(item, DatasetRow)]


def test_b60_struct_keys_that_arrow_made_up_are_dropped(tmp_path: Path) -> None:
    """Two rows with different metadata stay different, at any depth."""
    rows = rows_of(tmp_path, {"metadata": [{"a": 1}, {"b": "x", "c": {"d": [{"e": 1}, {"f": 2}]}}]})
    assert [row.metadata for row in rows] == [
        {"a": 1},
        {"b": "x", "c": {"d": [{"e": 1}, {"f": 2}]}},
    ]


def test_b60_json_text_keeps_its_nulls(tmp_path: Path) -> None:
    """That is the way to store metadata when null means something."""
    [row] = rows_of(tmp_path, {"metadata": ['{"a": null}']})
    assert row.metadata == {"a": None}


def test_b60_columns_of_nulls_and_numbers(tmp_path: Path) -> None:
    """A column of nulls is absent; whole numbers stay whole; floats are written as floats."""
    columns = {"user_prompt": ["x", "x"], "ground_truth": [None, None], "label": [0, 12]}
    assert [row.label for row in rows_of(tmp_path, columns)] == ["0", "12"]
    floats = {"user_prompt": ["x", "x"], "label": [4.0, False]}
    floats["label"] = [4.0, 2.5]
    assert [row.label for row in rows_of(tmp_path, floats)] == ["4.0", "2.5"]


def test_text_in_any_of_its_types(tmp_path: Path) -> None:
    """Dictionaries, large strings and views are text."""
    text = pa.array(["x", "y"])
    columns = {
        "user_prompt": text.dictionary_encode(),
        "ground_truth": text.cast(pa.large_string()),
    }
    rows = rows_of(tmp_path, columns)
    assert [(row.prompt[0]["content"], row.label) for row in rows] == [("x", "x"), ("y", "y")]
    assert {row.line for row in rows} == {None}


@pytest.mark.parametrize(
    "value",
    [
        datetime(2026, 1, 1, tzinfo=UTC),
        Decimal("4.50"),
        b"4",
        datetime(2026, 1, 1, tzinfo=UTC).date(),
        {"when": datetime(2026, 1, 1, tzinfo=UTC)},
        [{"money": Decimal("4.50")}],
    ],
)
def test_b60_cells_that_json_cannot_hold(tmp_path: Path, value: Any) -> None:
    """The column is named once, with its type and what to do."""
    [fault] = scan(tmp_path, {"user_prompt": ["x", "x"], "label": [value, None]})
    assert isinstance(fault, DatasetError)
    assert (fault.row, fault.column) == (None, "label")
    assert "store it as text or numbers" in fault.problem


def test_foreign_columns_of_any_type_do_not_matter(tmp_path: Path) -> None:
    """Only the columns that mean something are read."""
    [row] = rows_of(tmp_path, {"user_prompt": ["x"], "label": ["4"], "image": [b"\x89PNG"]})
    assert row.label == "4"


def test_nan_and_broken_text_are_named_by_row(tmp_path: Path) -> None:
    """A bad cell does not hide the rows after it."""
    text = pa.Array.from_buffers(
        pa.string(),
        3,
        [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0\3\0\0\0"), pa.py_buffer(b"a\xffc")],
    )
    items = scan(tmp_path, {"user_prompt": text, "label": [1.0, 2.0, float("nan")]})
    faults = [item for item in items if isinstance(item, DatasetError)]
    assert [(fault.row, fault.column) for fault in faults] == [(1, "user_prompt"), (2, "label")]
    assert isinstance(items[0], DatasetRow)


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"question": ["x"]}, "its columns are: 'question'"),
        ({"user_prompt": pa.array([], pa.string())}, "the file has no rows"),
        (pa.table([["x"], ["y"]], names=["label", "label"]), "a column comes twice: 'label'"),
    ],
)
def test_what_is_wrong_with_the_whole_file(tmp_path: Path, columns: Any, problem: str) -> None:
    """It is told once."""
    [fault] = scan(tmp_path, columns)
    assert isinstance(fault, DatasetError)
    assert problem in fault.problem


def test_a_file_that_is_no_parquet(tmp_path: Path) -> None:
    """Neither text nor half a file."""
    for content in (b"", b"user_prompt,label\n", b"PAR1" + bytes(20) + b"PAR1"):
        (tmp_path / "data.parquet").write_bytes(content)
        [fault] = scan_dataset(tmp_path / "data.parquet")
        assert isinstance(fault, DatasetError)
        assert "read" in fault.problem


def test_a_missing_extra_is_named_with_its_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exact pip line."""
    (tmp_path / "data.parquet").touch()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(EvalError, match=r"pip install 'osmosis-rollout-client\[parquet\]'"):
        next(scan_dataset(tmp_path / "data.parquet"))
