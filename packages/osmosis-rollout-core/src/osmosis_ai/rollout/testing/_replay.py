"""A policy that answers with what real models once wrote."""

import time
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Self, cast, override
from urllib.parse import quote, unquote

from osmosis_ai.rollout.testing._endpoint import ChatEndpoint, PolicyRequest
from osmosis_ai.rollout.testing._http import HttpError
from osmosis_ai.rollout.testing._message import ToolCall
from osmosis_ai.rollout.testing._recordings import Recordings, Solution, load_recordings
from osmosis_ai.rollout.testing._replies import Reply, reply

_TOOL: Final = "calculator"
_TOOL_ROLES: Final = {"tool", "function"}


class ReplayPolicy(ChatEndpoint):
    """A chat-completions endpoint that replays recorded solutions (see `_recordings`).

        with ReplayPolicy("solutions.jsonl") as policy:
            urls = [policy.url_for(model) for model in policy.models]

    The question is found in the conversation's user messages: the last one that is, or contains,
    a recorded question. Each computation in the solution becomes a call of the tool `calculator`
    with `{"expression": "16-3"}`; whatever the tool answers, an error too, the next turn goes on
    where the solution went on, up to its end. A request that offers no such tool gets the whole
    solution at once. Nothing is kept between requests, so any number of conversations may run.

    Requests without a recorded question, and unknown models, get a 404 that says so.

    Args:
        path: The file; it is read when it is first needed.
    """

    def __init__(self, path: str | Path) -> None:
        super().__init__()
        self._path = Path(path)

    def __enter__(self) -> Self:
        """Start to serve.

        Raises:
            OSError: the file cannot be read.
            RecordingError: the file's content is malformed; the message names file and line.
        """
        _ = self._recordings
        return super().__enter__()

    @property
    def models(self) -> list[str]:
        """The recorded models, in the order of the file's first line."""
        return list(self._recordings.models)

    def url_for(self, model: str) -> str:
        """Return the base URL at which `model` answers.

        Raises:
            ValueError: the file has no such model.
            RuntimeError: the policy is not running.
        """
        if model not in self._recordings.models:
            msg = f"there is no recorded model {model!r}; there are {', '.join(self.models)}"
            raise ValueError(msg)
        return f"{self.root_url}/{quote(model, safe='')}/v1"

    @cached_property
    def _recordings(self) -> Recordings:
        return load_recordings(self._path)

    def _answer(self, request: PolicyRequest) -> Reply:
        model = unquote(request.path.split("/")[1])
        if model not in self._recordings.models:
            known = ", ".join(self._recordings.models)
            raise HttpError(
                404, f"the URL names no recorded model (url_for does); there are {known}"
            )
        solution, results = self._find(request.messages, model)
        if not _offers_tool(request.body):
            return reply(solution.text, model=model)
        position = min(results, len(solution.turns) - 1)
        turn = solution.turns[position]
        if turn.expression is None:
            return reply(turn.text, model=model)
        call = ToolCall(_TOOL, {"expression": turn.expression}, id=f"call_{position}")
        return reply(turn.text or None, tool_calls=[call], model=model)

    @override
    def _created(self) -> int:
        # Archives take it for the time of the turn, and these turns are taken now.
        return int(time.time())

    def _find(self, messages: Sequence[Mapping[str, Any]], model: str) -> tuple[Solution, int]:
        """Return the solution, and how many tool results have come since its question."""
        results = 0
        for message in reversed(messages):
            role: object = message.get("role")
            if role in _TOOL_ROLES:
                results += 1
            elif role == "user" and (found := self._recordings.find(_text(message))):
                return found[model], results
        raise HttpError(
            404,
            f"none of the {len(self._recordings.solutions)} recorded questions "
            "is in the conversation's user messages",
        )


def _text(message: Mapping[str, Any]) -> str:
    content: object = message.get("content")
    if isinstance(content, str):
        return content
    return "\n".join(str(part.get("text", "")) for part in _objects(content))


def _offers_tool(body: Mapping[str, Any]) -> bool:
    functions = _objects([tool.get("function") for tool in _objects(body.get("tools"))])
    return any(function.get("name") == _TOOL for function in functions)


def _objects(value: object) -> list[dict[str, Any]]:
    items = cast("Iterable[object]", value) if isinstance(value, list) else ()
    return [cast("dict[str, Any]", item) for item in items if isinstance(item, dict)]
