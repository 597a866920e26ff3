"""Consoles, and text on them."""

import re
from textwrap import indent

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

# Control characters but for tabs and line ends; other separators of lines; what turns the direction
# of all that follows; half characters, which no terminal can be sent.
_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def stdout(*, plain: bool = False) -> Console:
    """Return the console for results; `plain` treats a terminal like a pipe."""
    return Console(force_terminal=False if plain else None, no_color=plain or None)


def stderr(*, plain: bool = False) -> Console:
    """Return the console for everything else, likewise."""
    return Console(stderr=True, force_terminal=False if plain else None, no_color=plain or None)


def printable(text: str) -> str:
    """Return foreign text with U+FFFD for all that would steer a terminal, or mislead its reader.

    Text in any language stays as it is.
    """
    return _STEERING.sub("\ufffd", text.replace("\r\n", "\n"))


def say(console: Console, text: str, style: str | None = None, *, by_word: bool = False) -> None:
    """Print text as it is, without what would steer a terminal: some of it is foreign.

    Args:
        console: Where to print it.
        text: The text.
        style: How it looks on a terminal.
        by_word: Whether a terminal gets lines that are broken between words, for text that is read
            and not copied.
    """
    console.print(
        printable(text),
        style=style,
        markup=False,
        highlight=False,
        emoji=False,
        soft_wrap=not (by_word and console.is_terminal),
    )


def say_below(console: Console, text: str, style: str = "", *, depth: int = 1) -> None:
    """Print text indented, also where a terminal has to break its lines."""
    if console.is_terminal:
        padded = Padding(Text(printable(text), style), (0, 0, 0, 2 * depth), expand=False)
        console.print(padded, emoji=False)
    else:
        say(console, indent(text, "  " * depth))
