"""Consoles, and text on them."""

from rich.console import Console


def stdout(*, plain: bool = False) -> Console:
    """Return the console for results; `plain` treats a terminal like a pipe."""
    return Console(force_terminal=False if plain else None, no_color=plain or None)


def stderr(*, plain: bool = False) -> Console:
    """Return the console for everything else, likewise."""
    return Console(stderr=True, force_terminal=False if plain else None, no_color=plain or None)


def printable(text: str) -> str:
    """Return foreign text without what would steer a terminal."""
    return "".join(char if char.isprintable() or char in "\n\t" else "\ufffd" for char in text)


def say(console: Console, text: str) -> None:
    """Print text as it is, without what would steer a terminal: some of it is foreign."""
    console.print(printable(text), markup=False, highlight=False, emoji=False, soft_wrap=True)
