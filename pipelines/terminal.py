"""Output of `sesame`: lines of stages with their name in front, tables, one colour per kind of stage; on a terminal a board of what
runs now, below one line for each stage that has ended."""

import sys
import threading
import time
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

console = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 160)
COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "bright_cyan", "bright_magenta", "bright_blue")
STATES = {"Completed": "green", "Cached": "dim", "Failed": "bold red", "Skipped": "yellow", "Stopped": "yellow"}
STATES |= {"done": "green", "running": "cyan", "failed": "bold red", "crashed": "bold red", "stopped": "yellow"}


TAIL = 12
"""Lines of a stage that a board shows again when it has failed."""


class Board:
    """What runs now: a row a stage with its last line, a bar of the stages that have ended, and about how long the rest takes."""

    def __init__(self, seconds: float | None):
        self.begun, self.seconds, self.ended, self.total = time.monotonic(), seconds, 0, 0
        self.running: dict[str, tuple[float, deque[str]]] = {}
        self.lock = threading.Lock()  # stages say their lines from threads of their own

    def note(self, stage: str, text: str) -> None:
        """Keep a line of a stage; the first one begins it."""
        with self.lock:
            self.running.setdefault(stage, (time.monotonic(), deque(maxlen=TAIL)))[1].append(text)

    def end(self, stage: str, ended: int, total: int) -> list[str]:
        """Take a stage off the board; its last lines."""
        with self.lock:
            self.ended, self.total = ended, total
            return list(self.running.pop(stage, (0.0, ()))[1])

    def __rich__(self) -> Group:
        with self.lock:
            rows = [(stage, time.monotonic() - begun, lines[-1] if lines else "") for stage, (begun, lines) in self.running.items()]
        shown = Table.grid(padding=(0, 1))
        shown.add_column(no_wrap=True)
        shown.add_column(justify="right", no_wrap=True)
        shown.add_column(no_wrap=True, overflow="ellipsis")
        for stage, seconds, text in rows:
            shown.add_row(Text(stage, colour(stage)), f"{seconds:.0f} s", Text(text, "dim"))
        bar = Table.grid(padding=(0, 1))
        done = ProgressBar(total=self.total or 1, completed=self.ended, width=30)
        bar.add_row(done, Text(f"{self.ended}/{self.total} stages{self._left()}"))
        return Group(shown, bar) if self.total or rows else Group()

    def _left(self) -> str:
        if not self.seconds:
            return ""
        left = self.seconds - (time.monotonic() - self.begun)
        if left <= 0:
            return ", longer than estimated"
        return f", about {left / 60:.0f} min left" if left > 90 else f", about {left:.0f} s left"


_board: Board | None = None


@contextmanager
def board(seconds: float | None) -> Iterator[None]:
    """On a terminal: show what runs in place of its lines, which Prefect's page and logs have. `seconds`: what all will take."""
    global _board
    if not console.is_terminal:
        yield
        return
    _board = Board(seconds)
    try:
        with Live(console=console, get_renderable=lambda: _board or "", refresh_per_second=4, transient=True):
            yield
    finally:
        _board = None


def number(count: int, noun: str) -> str:
    """`1 job`, `2 jobs`."""
    return f"{count} {noun}{'s' * (count != 1)}"


def some(names: Sequence[str], most: int = 3) -> str:
    """`a, b, c and 4 more`."""
    return ", ".join(names[:most]) + f" and {len(names) - most} more" * (len(names) > most)


def colour(stage: str) -> str:
    """Of a kind of stage."""
    return COLOURS[zlib.crc32(stage.partition("@")[0].encode()) % len(COLOURS)]


def line(stage: str, text: str, style: str = "") -> None:
    """One line of a stage's output; one with a style is shown on a board, too."""
    if _board and not style:
        _board.note(stage, text)
    else:
        _print(stage, text, style)


def _print(stage: str, text: str, style: str = "") -> None:
    console.print(Text.assemble((f"[{stage}] ", colour(stage)), (text, style)))


def ended(stage: str, text: str, style: str, ended: int, total: int) -> None:
    """The line of a stage that has ended; on a board one that has failed shows its last lines first."""
    tail = _board.end(stage, ended, total) if _board else []
    if style != STATES["done"]:
        for output_line in tail:
            _print(stage, output_line)
    if text:
        _print(stage, f"{text} ({ended}/{total})", style)


def say(text: str, style: str = "") -> None:
    """A line of the flow itself."""
    console.print(Text(text, style))


def table(columns: list[str], rows: list[list[str]], title: str = "") -> None:
    """A compact table; a cell that is the name of a state gets its colour."""
    shown = Table(*columns, title=title or None, title_justify="left", box=None, pad_edge=False, header_style="bold")
    shown.show_header = any(columns)
    for row in rows:
        shown.add_row(*(Text(cell, STATES.get(cell, "")) for cell in row))
    console.print(shown, soft_wrap=False)
