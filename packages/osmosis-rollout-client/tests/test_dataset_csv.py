"""CSV datasets: what a strict reader takes, and how precisely it names the rest."""

import csv
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osmosis_ai.rollout.eval import DatasetError, DatasetRow, scan_dataset

HEADER = "user_prompt,ground_truth\n"


def scan(tmp_path: Path, content: str | bytes) -> list[DatasetRow | DatasetError]:
    path = tmp_path / "data.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return list(scan_dataset(path))


def rows_of(tmp_path: Path, content: str | bytes) -> list[DatasetRow]:
    return [item for item in scan(tmp_path, content) if isinstance(item, DatasetRow)]


def fault_of(tmp_path: Path, content: str | bytes) -> DatasetError:
    [fault] = (item for item in scan(tmp_path, content) if isinstance(item, DatasetError))
    return fault


def test_cells_are_text(tmp_path: Path) -> None:
    """Nothing is guessed: a label of digits stays as it was written."""
    [row] = rows_of(tmp_path, 'user_prompt,label,metadata,note\n2+2?,007,"{""a"": 1}",x\n')
    assert (row.prompt[0]["content"], row.label, row.metadata) == ("2+2?", "007", {"a": 1})


def test_lines_and_rows_are_told_apart(tmp_path: Path) -> None:
    """A cell may hold line ends; blank lines are no rows; a BOM and CRLF are no data."""
    rows = rows_of(tmp_path, f'\ufeff{HEADER}"a\nb",1\r\n\r\n"c\u2028d",2'.replace("\n", "\r\n"))
    assert [(row.index, row.line) for row in rows] == [(0, 2), (1, 5)]
    assert [row.prompt[0]["content"] for row in rows] == ["a\r\nb", "c\u2028d"]


texts = st.text(st.characters(codec="utf-8")).filter(
    lambda text: text.strip() and text.strip().lower() not in {"nan", "+nan", "-nan"}
)


@given(cells=st.lists(st.tuples(texts, texts), min_size=1, max_size=5))
def test_whatever_the_standard_library_writes_is_read(
    tmp_path_factory: pytest.TempPathFactory, cells: list[tuple[str, str]]
) -> None:
    """All text survives quoting."""
    file = io.StringIO(newline="")
    csv.writer(file, quoting=csv.QUOTE_ALL).writerows([("user_prompt", "ground_truth"), *cells])
    rows = rows_of(tmp_path_factory.mktemp("csv"), file.getvalue())
    assert [(row.prompt[0]["content"], row.label) for row in rows] == cells


@pytest.mark.parametrize(
    ("line", "column", "problem"),
    [
        ("a", None, "has 1 cells, and the header 2"),
        ("a,1,x", None, "has 3 cells, and the header 2"),
        ("a,NaN", "ground_truth", "NaN is what programs write"),
        ("nan,1", "user_prompt", "NaN is what programs write"),
        ("a, ", "ground_truth", "is missing or blank"),
        (b"a,\xff", "ground_truth", "not UTF-8"),
        ('"a" b,1', None, "not CSV"),
        ("a\rb,1", None, "not CSV"),
    ],
)
def test_a_bad_row_is_named_and_does_not_hide_the_next(
    tmp_path: Path, line: str | bytes, column: str | None, problem: str
) -> None:
    """The fault has row, line and column; reading goes on behind it."""
    bad = line if isinstance(line, bytes) else line.encode()
    content = HEADER.encode() + b"good,1\n" + bad + b"\ngood,2\n"
    assert [row.label for row in rows_of(tmp_path, content)] == ["1", "2"]
    fault = fault_of(tmp_path, content)
    assert (fault.row, fault.line, fault.column) == (1, 3, column)
    assert problem in fault.problem


def test_a_quote_that_is_never_closed(tmp_path: Path) -> None:
    """It is told with the line where it was opened."""
    fault = fault_of(tmp_path, HEADER + 'a,1\nb,"2\nc,3\n')
    assert (fault.row, fault.line) == (1, 3)
    assert "unexpected end of data" in fault.problem


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "the file has no rows"),
        (HEADER, "the file has no rows"),
        ("user_prompt,user_prompt\na,b\n", "a column comes twice: 'user_prompt'"),
        ("question;answer\na;b\n", "its columns are: 'question;answer'"),
        ('"user_prompt" x,ground_truth\na,1\n', "not CSV"),
    ],
)
def test_what_is_wrong_with_the_whole_file_is_told_once(
    tmp_path: Path, content: str, problem: str
) -> None:
    """Not again for each of its rows."""
    fault = fault_of(tmp_path, content)
    assert problem in fault.problem
    assert fault.row is None


def test_b61_in_csv(tmp_path: Path) -> None:
    """Zero and words for it are answers; blank metadata is none; each fault of a row is told."""
    content = "user_prompt,ground_truth,metadata\nx,0,\nx,False,{}\nx,1,null\nx,1,[]\n,,\n"
    rows = rows_of(tmp_path, content)
    assert [(row.label, row.metadata) for row in rows] == [("0", None), ("False", {})]
    faults = [item for item in scan(tmp_path, content) if isinstance(item, DatasetError)]
    assert [(fault.row, fault.column) for fault in faults] == [
        (2, "metadata"),
        (3, "metadata"),
        (4, "user_prompt"),
        (4, "ground_truth"),
    ]
