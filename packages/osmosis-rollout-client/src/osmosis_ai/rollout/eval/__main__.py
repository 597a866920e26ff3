"""Start the `osmosis-rollout` command, or say what it lacks."""

import sys


def main() -> None:
    """Run the command with the process's arguments."""
    try:
        # Commands import what they need when they run, and this they all need.
        import rich  # noqa: F401 # pyright: ignore[reportUnusedImport]

        from osmosis_ai.rollout.eval._command import app

        app(prog_name="osmosis-rollout")
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in {"rich", "typer"}:
            raise
        needed = "pip install 'osmosis-rollout-client[eval]'"
        print(f"osmosis-rollout needs {missing}: {needed}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
