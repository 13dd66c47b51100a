"""What all subcommands share: types of their arguments, and errors that are printed as one line."""

import errno
import io
import os
import re
import sqlite3
import sys
from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import Annotated

import typer

from components.core.errors import SesameError, one_line

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
MOST = 1024
"""Upper limit of stages or runs side by side, and of rounds: it catches typing errors."""
Targets = Annotated[
    list[str] | None,
    typer.Argument(metavar="[STAGE]...", help="Stages (pretrain@bert) or groups (finetune). Default: all stages."),
]
Jobs = Annotated[int | None, typer.Option(min=1, max=MOST, help="How many stages run side by side.")]
Lines = Annotated[bool, typer.Option("--lines", help="Print all output of all stages, in place of the progress board.")]


def plain_name(text: str) -> str:
    """Check that an argument is the name of an entry of a folder in data/, not a path that leads out of it."""
    if not re.fullmatch(r"\w[\w.-]*", text):
        raise typer.BadParameter(f"{text!r} is not a name; write the name as in params.yaml, without a path")
    return text


def in_utf8(arguments: Iterable[object]) -> None:
    """Raises SesameError for an argument that is not UTF-8. File names may be in any encoding."""
    for given in arguments:
        for text in given if isinstance(given, list) else [given]:
            try:
                if isinstance(text, str):
                    text.encode()
            except UnicodeEncodeError as error:
                wrong = f"byte 0x{ord(text[error.start]) & 0xFF:02x} at {error.start}"
                cure = "convert it, or set LC_ALL=C.UTF-8 if the terminal does send UTF-8"
                raise SesameError(f"{ascii(text[:60])} is not UTF-8 ({wrong}); {cure}") from None


GIT_VARIABLES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY", "GIT_PREFIX")
"""Variables by which git tells its hooks, and commands of `git rebase --exec`, which repository they are in. A worktree
run has its own worktree; with these variables git would write to the user's index instead."""


def _say_whose_code() -> None:
    """Print a warning if the current folder is a checkout with its own code, and this process runs other code.

    A worktree run is exempt: its folder is below the checkout whose code runs.
    """
    here, checkout = Path.cwd(), Path(__file__).resolve().parents[2]
    if Path(here, "pipelines/flow.py").exists() and not here.is_relative_to(checkout):
        said = f"sesame: this command belongs to {checkout} and runs the code there, not the code in {here}"
        print(f"{said}; `make install` here installs a command for this checkout", file=sys.stderr)


def _open_closed_streams() -> None:
    """Give this process the standard streams that it was started without (`>&-`): libraries ask them whether they are a
    terminal, and the next file that is opened would get their number, and all that children print."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115


def _disk_full(error: Exception) -> str:
    """The message for a disk that takes no more, or an output on one. What is left to be printed is dropped, or Python
    would complain of it at its exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    place = f" for {error.filename}" if getattr(error, "filename", None) else ""
    cure = "free some, or raise `ulimit -f`, and run again"
    return f"sesame: no space is left on the disk{place} ({one_line(error)}); {cure}"


def one_line_errors(function: Callable) -> Callable:
    """A subcommand whose errors are printed as one line."""

    @wraps(function)
    def checked(*args, **kwargs):
        _open_closed_streams()
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):  # a terminal without Unicode gets the other characters escaped
                stream.reconfigure(errors="backslashreplace")
        for variable in GIT_VARIABLES:
            os.environ.pop(variable, None)
        _say_whose_code()
        try:
            in_utf8(kwargs.values())
            function(*args, **kwargs)
        except SesameError as error:
            sys.exit(f"sesame: {error}")
        except FileNotFoundError as error:
            if error.filename != "git":
                raise
            sys.exit("sesame: git is not in PATH, and DVC needs it; install git, or correct PATH")
        except sqlite3.OperationalError as error:  # DVC's own files
            if not str(error).startswith(("disk I/O error", "database or disk is full")):
                raise
            sys.exit(_disk_full(error))
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
                sys.exit(_disk_full(error))
            if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
                cure = "change its rights, or work in a clone of your own"
                sys.exit(f"sesame: {error.filename or 'a file'} can't be opened ({error.strerror}); {cure}")
            if error.errno in (errno.ENOTDIR, errno.EISDIR, errno.EEXIST):
                cure = "a folder is where a file is expected, or a file where a folder is: move it"
                sys.exit(f"sesame: {error.filename or 'a path'} can't be used ({error.strerror}); {cure}")
            if error.errno != errno.ENAMETOOLONG:
                raise
            sys.exit(f"sesame: {str(error.filename)[:60]!r}... is too long for a file name; give a shorter one")
        except KeyboardInterrupt:
            sys.exit(130)
        except RuntimeError as error:
            if not _interrupted(error):
                raise
            sys.exit(130)

    return checked


def _interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C is behind an error: Python makes another one of it where it comes while a class of a library is made."""
    return isinstance(error, KeyboardInterrupt) or (error is not None and _interrupted(error.__cause__ or error.__context__))


def group(panel: str) -> Callable[..., Callable]:
    """A decorator `@command(NAME)` of subcommands that `sesame --help` lists together. The name is by default the function's."""

    def command(name: str | None = None) -> Callable[[Callable], Callable]:
        return lambda function: app.command(name, rich_help_panel=panel)(one_line_errors(function))

    return command
