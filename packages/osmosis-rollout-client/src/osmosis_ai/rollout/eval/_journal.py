"""The journal: what a run knows, in a form that survives the loss of its process at any moment."""

import asyncio
import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, cast

from osmosis_ai.rollout.eval._dataset import DatasetRow
from osmosis_ai.rollout.eval._errors import EvalError, RunError
from osmosis_ai.rollout.eval._outcomes import Outcome
from osmosis_ai.rollout.types import Messages


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the journal: how an attempt at a row ended, with all that is needed to grade it.

    Attributes:
        outcome: How it ended.
        prompt: The row's messages.
        label: The row's reference answer, or None.
        metadata: The row's metadata, or None.
        sample: The sample as the server sent it, or None.
    """

    outcome: Outcome
    prompt: Messages
    label: str | None
    metadata: dict[str, Any] | None
    sample: dict[str, Any] | None

    @classmethod
    def of(cls, outcome: Outcome, row: DatasetRow, sample: dict[str, Any] | None = None) -> Self:
        """Return the entry of an attempt at a row."""
        return cls(outcome, row.prompt, row.label, row.metadata, sample)

    def encoded(self) -> bytes:
        """Return the entry as one line of JSON, without its end."""
        value = {
            "outcome": self.outcome.as_json(),
            "prompt": self.prompt,
            "label": self.label,
            "metadata": self.metadata,
            "sample": self.sample,
        }
        return json.dumps(value, allow_nan=False).encode()


class Journal:
    """Appends entries to a file that no other process may write meanwhile.

    Args:
        path: The file; it is made where it is missing. What a lost process left half-written at
            its end is cut off: nobody was told of it.

    Raises:
        EvalError: another process writes it; it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._waiting: list[bytes] = []
        self._failure: RunError | None = None
        self._writing = asyncio.Lock()
        try:
            self._file = path.open("ab")
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._file.truncate(whole_bytes(path))
            _sync_directory(path.parent)
        except BlockingIOError:
            self._file.close()
            msg = f"{path.parent}: another process is at work on this run"
            raise EvalError(msg) from None
        except OSError as error:
            msg = f"{path}: cannot be written: {error.strerror or error}"
            raise EvalError(msg) from None

    async def append(self, entry: Entry) -> None:
        """Write an entry, and return once it would survive the loss of the machine.

        Raises:
            RunError: it cannot be written.
        """
        self._waiting.append(entry.encoded() + b"\n")
        async with self._writing:
            # Whoever comes first writes for all that wait by then: one sync for many entries.
            if lines := b"".join(self._waiting):
                self._waiting.clear()
                await asyncio.to_thread(self._write, lines)
            if self._failure:
                raise self._failure

    def close(self) -> None:
        """Close the file; others may write it then."""
        with suppress(OSError):  # what could not be written has been reported
            self._file.close()

    def _write(self, lines: bytes) -> None:
        try:
            self._file.write(lines)
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            msg = f"{self.path}: cannot be written: {error.strerror or error}"
            self._failure = RunError(msg)


def read_journal(path: Path) -> Iterator[Entry]:
    """Yield the entries of a journal, the oldest first; a later one of the same place counts.

    Raises:
        EvalError: the file cannot be read, or holds something else.
    """
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if line.endswith(b"\n"):
                    yield _entry(path, number, line)
    except OSError as error:
        msg = f"{path}: cannot be read: {error.strerror or error}"
        raise EvalError(msg) from None


def _entry(path: Path, number: int, line: bytes) -> Entry:
    try:
        value = cast("dict[str, Any]", json.loads(line))
        outcome = Outcome.from_json(value.pop("outcome"))
        return Entry(outcome, **value)
    except (ValueError, TypeError, KeyError, AttributeError):
        msg = f"{path}, line {number}: no entry of a journal; the file is damaged"
        raise EvalError(msg) from None


def whole_bytes(path: Path) -> int:
    """Return how long a file is up to its last whole line, in bytes."""
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        while end > 0:
            start = max(0, end - (1 << 16))
            file.seek(start)
            newline = file.read(end - start).rfind(b"\n")
            if newline >= 0:
                return start + newline + 1
            end = start
    return 0


def _sync_directory(path: Path) -> None:
    # Without it, a new file's name may be lost though its content is safe.
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
