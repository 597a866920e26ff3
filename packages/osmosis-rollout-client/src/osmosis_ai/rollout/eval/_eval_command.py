"""`osmosis-rollout eval`, once its flags are read."""

import asyncio
import json
import os
import secrets
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from osmosis_ai.rollout.eval._config_file import ConfigFile
from osmosis_ai.rollout.eval._console import say, stderr, stdout
from osmosis_ai.rollout.eval._course import RunReport
from osmosis_ai.rollout.eval._display import show_report
from osmosis_ai.rollout.eval._errors import EvalError
from osmosis_ai.rollout.eval._evaluate import evaluate
from osmosis_ai.rollout.eval._options import EvalOptions
from osmosis_ai.rollout.eval._progress import ProgressDisplay
from osmosis_ai.rollout.eval._report import write_page
from osmosis_ai.rollout.eval._stored import RUNS, StoredRun
from osmosis_ai.rollout.policy.answers import is_loopback
from osmosis_ai.rollout.types.segment import check_path_segment

_USUAL_KEY = "OPENAI_API_KEY"
_OF_THE_GATEWAY = ("model", "api_key_env", "token_ids", "max_calls", "record")


def run_evaluation(
    flags: dict[str, Any], config: Path | None, *, as_json: bool, plain: bool
) -> bool:
    """Evaluate, show what comes of it, and tell whether every row ended in success.

    Args:
        flags: Arguments of `EvalOptions`, and perhaps `name`, the run's.
        config: A file with more of them, or None.
        as_json: Whether stdout gets one JSON document.
        plain: Whether everything is shown as plain text.

    Raises:
        EvalError: bad input, or a run that cannot be trusted.
    """
    errors = stderr(plain=plain)
    file = ConfigFile.read(config) if config else None
    for note in file.notes if file else []:
        say(errors, f"{config}: {note}")
    options = options_of(file.options if file else {}, flags)
    if file and "model" in file.options and options.model is None:
        say(errors, f"{config}: the model that it names has no effect without --base-url")
    with ProgressDisplay(errors) as progress:
        report = asyncio.run(evaluate(options, progress))
    write_page(StoredRun.find(str(options.output)))
    if as_json:
        # No console: it would break lines where its width ends.
        print(json.dumps(report.as_json()))
    else:
        show_report(report, stdout(plain=plain))
    if report.stopped:
        _show_stop(report, errors)
    return report.succeeded


def options_of(file: dict[str, Any], flags: dict[str, Any]) -> EvalOptions:
    """Return the options that a file and the flags give together; flags win.

    Raises:
        EvalError: they do not fit together, or no dataset is named.
    """
    given = {key: value for key, value in file.items() if not _displaced(key, flags)} | flags
    if "dataset" not in given:
        msg = "give the dataset, a .jsonl, .csv or .parquet file"
        raise EvalError(msg)
    name = given.pop("name", None)
    if name and "output" in given:
        msg = "give the run's --name or its directory, --output, not both"
        raise EvalError(msg)
    given.setdefault("output", RUNS / _run_name(given["dataset"], name))
    if "base_url" not in given and "model" not in flags:
        given.pop("model", None)
    key_name = given.pop("api_key_env", None)
    return EvalOptions(
        **given,
        upstream_key=_upstream_key(key_name, given.get("base_url", [])),
        server_key=os.environ.get("OSMOSIS_ROLLOUT_SERVER_KEY") or None,
        chat_key=os.environ.get("OSMOSIS_API_KEY") or None if "chat_url" in given else None,
    )


def _displaced(key: str, flags: dict[str, Any]) -> bool:
    # A flag takes the place of whatever the file says of the same choice.
    choices = ({"url", "entrypoint"}, {"chat_url", "replay", "base_url"}, {"name", "output"})
    if key in _OF_THE_GATEWAY and {"chat_url", "replay"} & set(flags):
        return True
    return any(key in choice and choice & set(flags) for choice in choices)


def _upstream_key(name: str | None, base_urls: list[str]) -> str | None:
    if name is not None:
        if not os.environ.get(name):
            msg = f"the environment lacks {name}, which --api-key-env names"
            raise EvalError(msg)
        return os.environ[name]
    # A key that nobody named for these URLs goes to none that others could listen to.
    parts = map(urlsplit, base_urls)
    private = all(url.scheme == "https" or is_loopback(url.hostname or "") for url in parts)
    return os.environ.get(_USUAL_KEY) or None if base_urls and private else None


def _run_name(dataset: Path, name: str | None) -> str:
    if name is None:
        return f"{dataset.stem}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
    try:
        return check_path_segment(name)
    except ValueError as error:
        msg = f"the run's name {error}"
        raise EvalError(msg) from None


def _show_stop(report: RunReport, console: Any) -> None:
    assert report.stopped
    say(console, f"the run ended early: {report.stopped.message}")
    if report.stopped.detail:
        say(console, f"{report.files.server_log} ends with:\n{report.stopped.detail}")
