"""Recorded solutions of grade-school problems, and the turns that they are replayed in.

The format is that of OpenAI's grade-school-math: one JSON object per line, with a `question` and,
for each model by name, an object with its `solution`. A solution marks its computations as
`<<16-3=13>>` in the running text.
"""

import json
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, cast

_COMPUTATION: Final = re.compile(r"<<([^<>=]+)=[^<>]*>>")


class RecordingError(ValueError):
    """A file of recorded solutions that cannot be used; the message names file and line."""


@dataclass(frozen=True)
class Turn:
    """One assistant turn.

    Attributes:
        text: What the model says.
        expression: What it then has computed; None in its last turn.
    """

    text: str
    expression: str | None = None


@dataclass
class Solution:
    """What one model wrote about one question.

    Attributes:
        recorded: The text as it was recorded, marks included.
    """

    recorded: str

    @cached_property
    def turns(self) -> list[Turn]:
        """The solution, split after each marked computation; a mark that is not closed is text."""
        *pieces, rest = _COMPUTATION.split(self.recorded)
        pairs = zip(pieces[::2], pieces[1::2], strict=True)
        return [*(Turn(text, expression.strip()) for text, expression in pairs), Turn(rest)]

    @cached_property
    def text(self) -> str:
        """The whole solution without its marks."""
        return _COMPUTATION.sub("", self.recorded)


@dataclass(frozen=True)
class Recordings:
    """A file's content.

    Attributes:
        models: The models' names, in the first line's order.
        solutions: By question (see `normalised`), then by model.
    """

    models: list[str]
    solutions: dict[str, dict[str, Solution]]

    def find(self, text: str) -> dict[str, Solution] | None:
        """Return the solutions of the question that `text` is, or of the longest one in it."""
        text = normalised(text)
        if text in self.solutions:
            return self.solutions[text]
        contained = [question for question in self.solutions if question in text]
        return self.solutions[max(contained, key=len)] if contained else None


def normalised(text: str) -> str:
    """Return text with every run of white space as one blank: templates may reflow a question."""
    return " ".join(text.split())


def load_recordings(path: Path) -> Recordings:
    """Read a file of recorded solutions.

    Raises:
        OSError: the file cannot be read.
        RecordingError: its content is not as described above.
    """
    models: list[str] = []
    solutions: dict[str, dict[str, Solution]] = {}
    # Only \n ends a line: other line separators are data.
    for number, line in enumerate(path.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            question, by_model = _parse_line(line)
            models = models or list(by_model)
            if by_model.keys() != set(models):
                msg = f"the models are not those of the first line ({', '.join(models)})"
                raise ValueError(msg)
            if solutions.setdefault(question, by_model) is not by_model:
                msg = "its question was recorded in an earlier line already"
                raise ValueError(msg)
        except ValueError as error:
            msg = f"{path}, line {number}: {error}"
            raise RecordingError(msg) from None
    if not solutions:
        msg = f"{path}: the file holds no recorded solutions"
        raise RecordingError(msg)
    return Recordings(models, solutions)


def _parse_line(line: bytes) -> tuple[str, dict[str, Solution]]:
    try:
        record: object = json.loads(line)
    except (ValueError, RecursionError):
        msg = "it is not JSON in UTF-8"
        raise ValueError(msg) from None
    if not isinstance(record, dict):
        msg = "it is not a JSON object"
        raise ValueError(msg)
    fields = cast("dict[str, Any]", record)
    question: object = fields.get("question")
    if not isinstance(question, str) or not question.strip():
        msg = "`question` is missing, empty or not text"
        raise ValueError(msg)
    by_model = {name: _solution(name, value) for name, value in fields.items() if _holds(value)}
    if not by_model:
        msg = 'no model\'s solution is in it: {"<model>": {"solution": "<text>"}} is expected'
        raise ValueError(msg)
    return normalised(question), by_model


def _holds(value: object) -> bool:
    return isinstance(value, dict) and "solution" in value


def _solution(model: str, value: dict[str, Any]) -> Solution:
    text: object = value["solution"]
    if not isinstance(text, str):
        msg = f"the solution of {model} is not text"
        raise ValueError(msg)
    return Solution(text)
