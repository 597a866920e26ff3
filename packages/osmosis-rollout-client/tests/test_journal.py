"""The journal: what is acknowledged is on disk, and what is half-written was never acknowledged."""

import asyncio
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from osmosis_ai.rollout.eval import DatasetRow, EvalError, Outcome, OutcomeStatus, RunError
from osmosis_ai.rollout.eval._journal import Entry, Journal, read_journal

ROW = DatasetRow(0, 1, [{"role": "user", "content": "2+2? \u2028 \u00e4"}], "4", {"a": [None, 1]})


def entry(number: int) -> Entry:
    outcome = Outcome(
        row=number,
        attempt=1,
        rollout_id=f"r-{number}",
        status=OutcomeStatus.SUCCESS,
        reward=0.5,
        passed=False,
    )
    return Entry.of(outcome, ROW, {"messages": [{"role": "assistant", "content": "4\n"}]})


async def write(path: Path, *entries: Entry) -> None:
    journal = Journal(path)
    await asyncio.gather(*map(journal.append, entries))
    journal.close()


async def test_entries_come_back_as_they_were(tmp_path: Path) -> None:
    """In the order in which they were given, however many were given at once."""
    entries = [entry(number) for number in range(50)]
    await write(tmp_path / "journal", *entries[:20])
    await write(tmp_path / "journal", *entries[20:])
    assert list(read_journal(tmp_path / "journal")) == entries


@settings(max_examples=30, deadline=None)
@given(cut=st.integers(1, 10_000))
def test_half_a_line_is_nothing(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    """Cut off anywhere, the whole lines before the cut are there, and writing goes on cleanly."""
    path = tmp_path_factory.mktemp("journal") / "journal"
    asyncio.run(write(path, *map(entry, range(5))))
    content = path.read_bytes()
    path.write_bytes(content[: cut % len(content)])
    whole = path.read_bytes().count(b"\n")
    assert [found.outcome.row for found in read_journal(path)] == list(range(whole))
    asyncio.run(write(path, entry(9)))
    assert [found.outcome.row for found in read_journal(path)] == [*range(whole), 9]


async def test_a_damaged_journal_is_told(tmp_path: Path) -> None:
    """With the line: nothing of it is guessed."""
    path = tmp_path / "journal"
    await write(path, entry(1))
    for damage in (b"\0\0\0\n", b"{}\n", b"[1]\n", b'{"outcome": {"row": 1}}\n'):
        path.write_bytes(path.read_bytes().splitlines(keepends=True)[0] + damage)
        with pytest.raises(EvalError, match="line 2: no entry of a journal"):
            list(read_journal(path))


async def test_a_write_that_fails_acknowledges_nobody(tmp_path: Path) -> None:
    """Neither who wrote nor who waited for it, then or later."""
    journal = Journal(tmp_path / "journal")
    # A device that is always full, in the place of the file.
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, journal._file.fileno())  # pyright: ignore[reportPrivateUsage]
    os.close(full)
    results = await asyncio.gather(
        *(journal.append(entry(number)) for number in range(3)), return_exceptions=True
    )
    results += await asyncio.gather(journal.append(entry(3)), return_exceptions=True)
    assert [type(result) for result in results] == [RunError] * 4
    assert "No space left" in str(results[0])
    journal.close()


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    """A second one is refused while the first lives."""
    first = Journal(tmp_path / "journal")
    with pytest.raises(EvalError, match="another process is at work"):
        Journal(tmp_path / "journal")
    first.close()
    Journal(tmp_path / "journal").close()
