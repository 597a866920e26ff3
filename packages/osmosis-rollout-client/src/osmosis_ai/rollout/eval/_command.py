"""The `osmosis-rollout` command; the only part that needs typer and rich."""

import asyncio
import os
import secrets
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from osmosis_ai.rollout.eval._display import ProgressDisplay, say, show_report
from osmosis_ai.rollout.eval._errors import EvalError, RunError
from osmosis_ai.rollout.eval._evaluate import RunReport, evaluate
from osmosis_ai.rollout.eval._options import EvalOptions

_BAD_INPUT = 2

app = typer.Typer(
    help="Evaluate rollout servers on your own machine.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def _command() -> None:  # pyright: ignore[reportUnusedFunction]
    # With a callback, typer keeps `eval` a subcommand although it is the only one.
    pass


@app.command("eval")
def evaluate_command(
    dataset: Annotated[Path, typer.Argument(help="The rows: a .jsonl file.")],
    entrypoint: Annotated[
        str | None,
        typer.Argument(help="The app to serve for the run: main.py:app or package.module:app."),
    ] = None,
    url: Annotated[
        str | None, typer.Option(help="A running rollout server, instead of an entrypoint.")
    ] = None,
    chat_url: Annotated[
        str | None,
        typer.Option(help="The policy: base URL of a streaming chat-completions endpoint."),
    ] = None,
    replay: Annotated[
        Path | None,
        typer.Option(help="The policy: recorded solutions, one attempt by each model in it."),
    ] = None,
    attempts: Annotated[
        int | None,
        typer.Option(
            min=1, help="How often every row is tried.", show_default="1, or by each recorded model"
        ),
    ] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="How many rollouts run at a time.")] = 16,
    output: Annotated[
        Path | None,
        typer.Option(
            help="The run's directory, empty or not there yet.",
            show_default="osmosis-runs/<dataset>-<time>",
        ),
    ] = None,
    pass_threshold: Annotated[
        float, typer.Option(help="The reward from which an attempt counts as passed.")
    ] = 1.0,
    agent_timeout: Annotated[
        float | None, typer.Option(help="Budget of each workflow, in seconds.")
    ] = None,
    grader_timeout: Annotated[
        float | None, typer.Option(help="Budget of each grading, in seconds.")
    ] = None,
) -> None:
    """Run every row of DATASET on a rollout server and score it.

    Exit status: 0 when every row ended in success, passed or not; 1 when some row failed or was
    cancelled; 2 for bad input, before anything ran.

    Keys come from the environment: OSMOSIS_API_KEY for the policy's endpoint,
    OSMOSIS_ROLLOUT_SERVER_KEY for the rollout server.
    """
    errors = Console(stderr=True)
    try:
        options = EvalOptions(
            dataset=dataset,
            output=output or _fresh_directory(dataset),
            url=url,
            entrypoint=entrypoint,
            chat_url=chat_url,
            replay=replay,
            attempts=attempts,
            concurrency=concurrency,
            pass_threshold=pass_threshold,
            agent_timeout_sec=agent_timeout,
            grader_timeout_sec=grader_timeout,
            server_key=os.environ.get("OSMOSIS_ROLLOUT_SERVER_KEY") or None,
            chat_key=os.environ.get("OSMOSIS_API_KEY") or None if chat_url else None,
        )
        with ProgressDisplay(errors) as progress:
            report = asyncio.run(evaluate(options, progress.add))
    except EvalError as error:
        say(errors, f"osmosis-rollout: {error}")
        raise typer.Exit(1 if isinstance(error, RunError) else _BAD_INPUT) from None
    show_report(report, Console())
    _show_stop(report, errors)
    raise typer.Exit(0 if report.succeeded else 1)


def _fresh_directory(dataset: Path) -> Path:
    name = f"{dataset.stem}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
    return Path("osmosis-runs", name)


def _show_stop(report: RunReport, console: Console) -> None:
    if report.stopped:
        say(console, f"the run ended early: {report.stopped.message}")
        if report.stopped.detail:
            say(console, f"{report.files.server_log} ends with:\n{report.stopped.detail}")
