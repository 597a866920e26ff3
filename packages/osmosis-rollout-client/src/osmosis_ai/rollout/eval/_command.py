"""The `osmosis-rollout` command.

Only typer is imported here: what a command needs is imported when it runs, for help has to come at
once.
"""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from osmosis_ai.rollout.eval._errors import EvalError, RunError

_BAD_INPUT = 2

app = typer.Typer(
    help="Evaluate rollout servers on your own machine.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

Json = Annotated[bool, typer.Option("--json", help="Write one JSON document to stdout.")]
Plain = Annotated[bool, typer.Option("--plain", help="No bars, tables or colours anywhere.")]


@contextmanager
def refusing() -> Generator[None]:
    """Say what is wrong in one line, and end the command with the status that it has."""
    try:
        yield
    except EvalError as error:
        from osmosis_ai.rollout.eval._console import say, stderr

        say(stderr(), f"osmosis-rollout: {error}")
        raise typer.Exit(1 if isinstance(error, RunError) else _BAD_INPUT) from None


@app.command("check")
def check_command(
    datasets: Annotated[list[Path], typer.Argument(help=".jsonl, .csv or .parquet files.")],
    json: Json = False,
) -> None:
    """List everything that is wrong with datasets: file, row, line and column.

    Exit status: 0 when every row can be used, 2 when something is wrong. Rows are counted from 0,
    lines from 1.
    """
    from osmosis_ai.rollout.eval._checking import check_datasets

    with refusing():
        good = check_datasets(datasets, as_json=json)
    raise typer.Exit(0 if good else _BAD_INPUT)


@app.command("eval")
def evaluate_command(
    dataset: Annotated[
        Path | None, typer.Argument(help="The rows: a .jsonl, .csv or .parquet file.")
    ] = None,
    entrypoint: Annotated[
        str | None,
        typer.Argument(
            help="What to serve for the run: main.py:app or package.module:app, or a script that "
            "serves, main.py."
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="A TOML file with any of these options; flags win.")
    ] = None,
    url: Annotated[
        str | None, typer.Option(help="A running rollout server, instead of an entrypoint.")
    ] = None,
    python: Annotated[
        Path | None,
        typer.Option(
            help="The interpreter to serve the entrypoint with.",
            show_default="its project's .venv, or this one",
        ),
    ] = None,
    chat_url: Annotated[
        str | None,
        typer.Option(help="The policy: base URL of a streaming chat-completions endpoint."),
    ] = None,
    base_url: Annotated[
        list[str] | None,
        typer.Option(
            help="The policy: base URL of any OpenAI-compatible endpoint, reached through a "
            "gateway; give it again for more, the least busy gets a call.",
            show_default=False,
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="The model at --base-url.", show_default=False)
    ] = None,
    api_key_env: Annotated[
        str | None,
        typer.Option(
            help="The environment variable with the key for --base-url.",
            show_default="OPENAI_API_KEY, for https and loopback",
        ),
    ] = None,
    token_ids: Annotated[
        bool,
        typer.Option("--token-ids", help="Get token ids and logprobs into the trajectories."),
    ] = False,
    max_calls: Annotated[
        int | None,
        typer.Option(min=1, help="How many calls --base-url has at a time.", show_default="64"),
    ] = None,
    record: Annotated[
        bool, typer.Option("--record", help="Keep every answer of --base-url, for --replay.")
    ] = False,
    replay: Annotated[
        Path | None,
        typer.Option(
            help="The policy: a recorded run, its name or directory; or a file of recorded "
            "solutions, one attempt by each model in it."
        ),
    ] = None,
    rows: Annotated[
        str | None,
        typer.Option(help="Rows to run: 3,7,10-20, counted from 0.", show_default="all"),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Run the first so many.", show_default="all")
    ] = None,
    attempts: Annotated[
        int | None,
        typer.Option(
            min=1, help="How often every row is tried.", show_default="1, or by each recorded model"
        ),
    ] = None,
    max_in_flight: Annotated[
        int | None,
        typer.Option(
            "--max-in-flight",
            "--concurrency",
            min=1,
            help="How many rollouts run at a time.",
            show_default="the server's limit, or 16",
        ),
    ] = None,
    agent_timeout: Annotated[
        float | None, typer.Option(help="Budget of each workflow, in seconds.")
    ] = None,
    grader_timeout: Annotated[
        float | None, typer.Option(help="Budget of each grading, in seconds.")
    ] = None,
    pass_threshold: Annotated[
        float | None,
        typer.Option(help="Reward from which an attempt counts as passed.", show_default="1.0"),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            help="The run's name; one that is there already is resumed.",
            show_default="<dataset>-<time>",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(help="The run's directory.", show_default="osmosis-runs/<name>"),
    ] = None,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Resumed: run what failed again, too.")
    ] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Set a run of this name aside, and begin anew.")
    ] = False,
    json: Json = False,
    plain: Plain = False,
) -> None:
    """Run rows of DATASET on a rollout server and score them.

    A run that was interrupted, in whatever way, is resumed by starting it again with the same
    --name. Ctrl-C cancels the running rollouts and writes the results; a second one leaves at once.

    Exit status: 0 when every row ended in success, passed or not; 1 when some row failed or was
    cancelled; 2 for bad input, before anything ran.

    Keys come from the environment: OPENAI_API_KEY for --base-url, OSMOSIS_API_KEY for --chat-url,
    OSMOSIS_ROLLOUT_SERVER_KEY for the rollout server.
    """
    from osmosis_ai.rollout.eval._eval_command import run_evaluation

    flags: dict[str, Any] = {
        "dataset": dataset,
        "entrypoint": entrypoint,
        "url": url,
        "python": python,
        "chat_url": chat_url,
        "base_url": base_url or None,
        "model": model,
        "api_key_env": api_key_env,
        "token_ids": token_ids or None,
        "max_calls": max_calls,
        "record": record or None,
        "replay": replay,
        "rows": rows,
        "limit": limit,
        "attempts": attempts,
        "max_in_flight": max_in_flight,
        "agent_timeout_sec": agent_timeout,
        "grader_timeout_sec": grader_timeout,
        "pass_threshold": pass_threshold,
        "name": name,
        "output": output,
        "retry_failed": retry_failed or None,
        "fresh": fresh or None,
    }
    given = {key: value for key, value in flags.items() if value is not None}
    with refusing():
        succeeded = run_evaluation(given, config, as_json=json, plain=plain)
    raise typer.Exit(0 if succeeded else 1)


@app.command("compare")
def compare_command(
    run_a: Annotated[str, typer.Argument(help="A run: its name or its directory.")],
    run_b: Annotated[str, typer.Argument(help="Another one.")],
    json: Json = False,
) -> None:
    """Compare two runs row by row: better, worse, and whether it is more than noise.

    Rows that both have graded are paired. The chance is that of a sign-flip test, exact where each
    row passed or did not; below 0.05 a difference is called more than noise.
    """
    from osmosis_ai.rollout.eval._run_commands import compare_runs

    with refusing():
        compare_runs(run_a, run_b, as_json=json)


@app.command("regrade")
def regrade_command(
    run: Annotated[str, typer.Argument(help="A run: its name or its directory.")],
    entrypoint: Annotated[
        str | None,
        typer.Argument(
            help="What has the grader: main.py:app, package.module:app or main.py.",
            show_default="what the run served",
        ),
    ] = None,
    python: Annotated[
        Path | None,
        typer.Option(
            help="The interpreter to serve it with.",
            show_default="its project's .venv, or this one",
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(help="The new run's name.", show_default="<run>-regraded-<time>"),
    ] = None,
    max_in_flight: Annotated[
        int | None, typer.Option(min=1, help="How many gradings run at a time.")
    ] = None,
    grader_timeout: Annotated[
        float | None, typer.Option(help="Budget of each grading, in seconds.")
    ] = None,
    pass_threshold: Annotated[
        float | None,
        typer.Option(help="Reward from which an attempt passes.", show_default="the run's own"),
    ] = None,
    json: Json = False,
    plain: Plain = False,
) -> None:
    """Grade the samples of a run anew, without any inference, and show old against new.

    Exit status: as of eval.
    """
    from osmosis_ai.rollout.eval._run_commands import regrade_run

    with refusing():
        succeeded = regrade_run(
            run,
            entrypoint=entrypoint,
            python=python,
            name=name,
            max_in_flight=max_in_flight,
            pass_threshold=pass_threshold,
            grader_timeout_sec=grader_timeout,
            as_json=json,
            plain=plain,
        )
    raise typer.Exit(0 if succeeded else 1)


@app.command("show")
def show_command(
    rollout: Annotated[
        str, typer.Argument(help="A rollout's id, or its row and attempt, such as 7 or 7.2.")
    ],
    run: Annotated[
        str | None,
        typer.Option(help="The run: its name or its directory.", show_default="the newest with it"),
    ] = None,
) -> None:
    """Print one rollout as a transcript: what was said and called, what came of it, its files."""
    from osmosis_ai.rollout.eval._run_commands import show_one

    with refusing():
        show_one(rollout, run)


@app.command("export")
def export_command(
    run: Annotated[str, typer.Argument(help="A run: its name or its directory.")],
    file: Annotated[Path, typer.Argument(help="What to write: a .parquet or .jsonl file.")],
) -> None:
    """Write the samples of a run's successful rollouts, with rewards, as data for training."""
    from osmosis_ai.rollout.eval._run_commands import export_run

    with refusing():
        export_run(run, file)


@app.command("report")
def report_command(
    run: Annotated[str, typer.Argument(help="A run: its name or its directory.")],
) -> None:
    """Write report.html into a run's directory: numbers, charts and all transcripts in one page."""
    from osmosis_ai.rollout.eval._run_commands import write_report

    with refusing():
        write_report(run)
