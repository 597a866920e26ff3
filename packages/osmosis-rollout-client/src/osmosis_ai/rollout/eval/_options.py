"""What an evaluation is to do."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import TypeAdapter, ValidationError

from osmosis_ai.rollout.eval._errors import EvalError
from osmosis_ai.rollout.eval._selection import RowSelection
from osmosis_ai.rollout.policy.answers import is_loopback
from osmosis_ai.rollout.types.protocol import ApiKey, HttpUrl


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalOptions:
    """What to evaluate, with which policy, and where to write.

    Attributes:
        dataset: The rows; see `read_dataset`.
        output: The run's directory. A run that is there already with the same inputs is resumed.
        url: Base URL of a running rollout server, or None.
        entrypoint: What to serve for the run, or None: an app, `main.py:app` or
            `package.module:app`, or a script, `main.py`, that listens on `_OSMOSIS_ROLLOUT_PORT`.
        python: The interpreter to serve it with. By default that of the project's own `.venv`,
            if it has one, else the running one.
        chat_url: Base URL of the policy's endpoint, or None.
        base_url: Base URLs of OpenAI-compatible upstreams that the policy gateway passes calls on
            to, the least busy one first; empty for no gateway.
        model: The model that the gateway asks for.
        token_ids: Whether the gateway asks for token ids and log probabilities, for trajectories.
        max_calls: How many calls the gateway has upstream at a time.
        record: Whether the gateway keeps every answer, so that the run can be replayed.
        replay: What plays the policy: a file of recorded solutions, or a run that was recorded, by
            its name or its directory; or None.
        rows: The rows to run, such as `3,7,10-20`, counted from 0; by default all.
        limit: How many of them to run at most, the first ones; by default all.
        attempts: How often every row is tried. By default once, or by each recorded model.
        max_in_flight: How many rollouts run at a time. By default as many as the server's health
            names, and 16 where it names no limit.
        pass_threshold: The reward from which an attempt counts as passed.
        agent_timeout_sec: Budget of each workflow in seconds, or None.
        grader_timeout_sec: Budget of each grading in seconds, or None.
        retry_failed: Whether a resumed run runs again what failed or was cancelled.
        fresh: Whether a run that is there already is set aside, and begun anew.
        env: Further environment variables of the entrypoint's process; they are no secret.
        server_key: The rollout server's own key, or None.
        chat_key: Bearer for the policy's endpoint, or None.
        upstream_key: Bearer for the gateway's upstreams, or None.

    Raises:
        EvalError: the options do not fit together.
    """

    dataset: Path
    output: Path
    url: str | None = None
    entrypoint: str | None = None
    python: Path | None = None
    chat_url: str | None = None
    base_url: list[str] = field(default_factory=list[str])
    model: str | None = None
    token_ids: bool = False
    max_calls: int = 64
    record: bool = False
    replay: Path | None = None
    rows: str | None = None
    limit: int | None = None
    attempts: int | None = None
    max_in_flight: int | None = None
    pass_threshold: float = 1.0
    agent_timeout_sec: float | None = None
    grader_timeout_sec: float | None = None
    retry_failed: bool = False
    fresh: bool = False
    env: dict[str, str] = field(default_factory=dict[str, str])
    server_key: str | None = field(default=None, repr=False)
    chat_key: str | None = field(default=None, repr=False)
    upstream_key: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if (self.url is None) == (self.entrypoint is None):
            msg = "give either an entrypoint to serve, such as main.py:app, or --url of a server"
            raise EvalError(msg)
        if [self.chat_url is None, self.replay is None, not self.base_url].count(False) != 1:
            msg = (
                "give the policy, one of --base-url URL --model NAME (any OpenAI-compatible "
                "endpoint), --chat-url URL and --replay FILE"
            )
            raise EvalError(msg)
        self._check_gateway()
        for name in ("attempts", "limit", "max_in_flight", "max_calls"):
            value: int | None = getattr(self, name)
            if value is not None and value < 1:
                msg = f"{name} must be at least 1"
                raise EvalError(msg)
        _ = self.selection
        _check("--url", self.url, HttpUrl)
        _check("--chat-url", self.chat_url, HttpUrl)
        _check("the rollout server's key", self.server_key, ApiKey)
        _check("the policy's key", self.chat_key, ApiKey)
        _check("the upstream's key", self.upstream_key, ApiKey)
        for url in self.base_url:
            _check("--base-url", url, HttpUrl)

    def _check_gateway(self) -> None:
        if bool(self.base_url) != bool(self.model):
            msg = "--base-url and --model go together: where the policy is, and what it is called"
            raise EvalError(msg)
        if not self.base_url and (self.record or self.token_ids):
            msg = "--record and --token-ids need the gateway: give --base-url and --model"
            raise EvalError(msg)
        if self.base_url and self.url and not is_loopback(urlsplit(self.url).hostname or ""):
            msg = (
                "the gateway of --base-url listens on this machine's loopback, where the server "
                "at --url cannot reach it: give --chat-url instead"
            )
            raise EvalError(msg)

    @property
    def selection(self) -> RowSelection | None:
        """The rows to run, or None for all."""
        return None if self.rows is None else RowSelection.parse(self.rows)


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
