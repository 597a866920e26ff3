"""What an evaluation is to do."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from osmosis_ai.rollout.eval._errors import EvalError
from osmosis_ai.rollout.types.protocol import ApiKey, HttpUrl


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalOptions:
    """What to evaluate, with which policy, and where to write.

    Attributes:
        dataset: The rows; see `read_dataset`.
        output: The run's directory; it must not hold anything yet.
        url: Base URL of a running rollout server, or None.
        entrypoint: An app to serve for the run, `main.py:app` or `package.module:app`, or None.
        chat_url: Base URL of the policy's endpoint, or None.
        replay: A file of recorded solutions that play the policy, or None.
        attempts: How often every row is tried. By default once, or by each recorded model.
        concurrency: How many rollouts run at a time.
        pass_threshold: The reward from which an attempt counts as passed.
        agent_timeout_sec: Budget of each workflow in seconds, or None.
        grader_timeout_sec: Budget of each grading in seconds, or None.
        server_key: The rollout server's own key, or None.
        chat_key: Bearer for the policy's endpoint, or None.

    Raises:
        EvalError: the options do not fit together.
    """

    dataset: Path
    output: Path
    url: str | None = None
    entrypoint: str | None = None
    chat_url: str | None = None
    replay: Path | None = None
    attempts: int | None = None
    concurrency: int = 16
    pass_threshold: float = 1.0
    agent_timeout_sec: float | None = None
    grader_timeout_sec: float | None = None
    server_key: str | None = field(default=None, repr=False)
    chat_key: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if (self.url is None) == (self.entrypoint is None):
            msg = "give either an entrypoint to serve, such as main.py:app, or --url of a server"
            raise EvalError(msg)
        if (self.chat_url is None) == (self.replay is None):
            msg = "give the policy, either --replay FILE or --chat-url URL"
            raise EvalError(msg)
        if self.concurrency < 1 or (self.attempts is not None and self.attempts < 1):
            msg = "concurrency and attempts must be at least 1"
            raise EvalError(msg)
        _check("--url", self.url, HttpUrl)
        _check("--chat-url", self.chat_url, HttpUrl)
        _check("the rollout server's key", self.server_key, ApiKey)
        _check("the policy's key", self.chat_key, ApiKey)


def _check(name: str, value: str | None, kind: Any) -> None:
    if value is None:
        return
    try:
        TypeAdapter[str](kind).validate_python(value)
    except ValidationError as error:
        # The value may be a key, or hold one: only what is wrong with it is told.
        problem = error.errors()[0]["msg"].removeprefix("Value error, ")
        msg = f"{name} {problem}"
        raise EvalError(msg) from None
