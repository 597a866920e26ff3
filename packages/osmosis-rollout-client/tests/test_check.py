"""`osmosis-rollout check`, and what it costs on large files."""

import json
import subprocess
import sys
from collections.abc import Callable
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest

ROWS = 1_000_000


def check(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "osmosis_ai.rollout.eval", "check", *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True)


def test_every_fault_is_listed(tmp_path: Path) -> None:
    """With file, row, line and column, and status 2."""
    path = tmp_path / "data.jsonl"
    path.write_text('{"user_prompt": 5}\n<oops>\n\n{"user_prompt": "x", "label": 0}\n[]\n')
    done = check(path)
    assert done.returncode == 2
    assert done.stdout.splitlines() == [
        f"{path}, row 0, line 1, column 'user_prompt': must be text, not a number",
        f"{path}, row 0, line 1, column 'ground_truth': is missing or blank, and the row has no "
        "metadata; its columns are: 'user_prompt'",
        f"{path}, row 1, line 2, column 1: not JSON (Expecting value)",
        f"{path}, row 3, line 5, column 1: must be a JSON object, not a list",
        f"{path}: 1 rows can be used, 4 faults",
    ]


def test_good_files(tmp_path: Path) -> None:
    """Status 0, and how many rows there are, for each file."""
    (tmp_path / "a.jsonl").write_text('{"user_prompt": "x", "label": 0}')
    (tmp_path / "b.csv").write_text("user_prompt,label\nx,0\ny,1\n")
    done = check(tmp_path / "a.jsonl", tmp_path / "b.csv")
    assert done.returncode == 0
    assert "a.jsonl: 1 rows can be used, 0 faults" in done.stdout
    assert "b.csv: 2 rows can be used, 0 faults" in done.stdout


def test_json_for_machines(tmp_path: Path) -> None:
    """An object per fault, and nothing else."""
    path = tmp_path / "data.jsonl"
    path.write_text("[]\n")
    done = check("--json", path, tmp_path / "gone.csv")
    assert done.returncode == 2
    first, second = map(json.loads, done.stdout.splitlines())
    assert first == {
        "file": str(path),
        "row": 0,
        "line": 1,
        "column": 1,
        "problem": "must be a JSON object, not a list",
    }
    assert (second["row"], second["problem"]) == (None, "cannot be read: No such file or directory")


def write_jsonl(path: Path) -> None:
    with path.open("w") as file:
        file.writelines(repeat('{"user_prompt": "What is 2 + 2?", "ground_truth": 4}\n', ROWS))


def write_csv(path: Path) -> None:
    with path.open("w") as file:
        file.write("user_prompt,ground_truth\n")
        file.writelines(repeat("What is 2 + 2?,4\n", ROWS))


def write_parquet(path: Path) -> None:
    pa: Any = pytest.importorskip("pyarrow")
    pq: Any = pytest.importorskip("pyarrow.parquet")
    prompts = [f"What is {number} + 2? {'x' * 200}" for number in range(ROWS)]
    table = pa.table({"user_prompt": prompts, "ground_truth": prompts})
    pq.write_table(table, path, row_group_size=ROWS, compression="none", use_dictionary=False)


PEAK = """
import resource, sys
from osmosis_ai.rollout.eval import read_dataset

rows = read_dataset(sys.argv[1])
for _ in range(2000):
    next(rows)
early = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
count = 2000 + sum(1 for _ in rows)
late = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(count, (late - early) // 1024)
"""


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("suffix", "write"),
    [("jsonl", write_jsonl), ("csv", write_csv), ("parquet", write_parquet)],
)
def test_a_million_rows_need_no_more_memory_than_a_few(
    tmp_path: Path, suffix: str, write: Callable[[Path], None]
) -> None:
    """After 2,000 rows the process has what it needs for all the others: within 24 MiB."""
    path = tmp_path / f"data.{suffix}"
    write(path)
    done = subprocess.run(
        [sys.executable, "-c", PEAK, path], capture_output=True, text=True, check=True
    )
    path.unlink()
    count, mebibytes = map(int, done.stdout.split())
    assert count == ROWS
    assert mebibytes < 24
