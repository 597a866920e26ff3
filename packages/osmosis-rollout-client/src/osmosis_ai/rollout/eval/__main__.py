"""Start the `osmosis-rollout` command, or say what it lacks."""

import sys


def main() -> None:
    """Run the command with the process's arguments."""
    try:
        from osmosis_ai.rollout.eval._command import app
    except ModuleNotFoundError as error:
        if error.name not in {"rich", "typer"}:
            raise
        needed = "pip install 'osmosis-rollout-client[eval]'"
        print(f"osmosis-rollout needs {error.name}: {needed}", file=sys.stderr)
        sys.exit(2)
    app(prog_name="osmosis-rollout")


if __name__ == "__main__":
    main()
