"""Output of `sesame`: lines of stages with their name in front, tables, one colour per kind of stage."""

import sys
import zlib

from rich.console import Console
from rich.table import Table
from rich.text import Text

console = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 160)
COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "bright_cyan", "bright_magenta", "bright_blue")
STATES = {"Completed": "green", "Cached": "dim", "Failed": "bold red", "Skipped": "yellow", "Stopped": "yellow"}
STATES |= {"done": "green", "running": "cyan", "failed": "bold red", "crashed": "bold red", "stopped": "yellow"}


def line(stage: str, text: str, style: str = "") -> None:
    """One line of a stage's output."""
    colour = COLOURS[zlib.crc32(stage.partition("@")[0].encode()) % len(COLOURS)]
    console.print(Text.assemble((f"[{stage}] ", colour), (text, style)))


def say(text: str, style: str = "") -> None:
    """A line of the flow itself."""
    console.print(Text(text, style))


def table(columns: list[str], rows: list[list[str]], title: str = "") -> None:
    """A compact table; a cell that is the name of a state gets its colour."""
    shown = Table(*columns, title=title or None, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for row in rows:
        shown.add_row(*(Text(cell, STATES.get(cell, "")) for cell in row))
    console.print(shown, soft_wrap=False)
