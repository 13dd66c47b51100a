"""Errors of one line, and addresses without secrets."""

import os
import re
from collections.abc import Mapping

USER = re.compile(r"(?<=://)(?:[^\s/?#\"'<>]*|[^\s/:@\"'<>]*:[^\s@\"'<>]*)@")
"""User and password before the host; SQLAlchemy also accepts an unquoted slash in a password. A lone user name may be a token."""
WITHOUT_SCHEME = re.compile(r"(?<![\w.+%-])[\w.+%-]*:[^\s/@\"'<>]{1,2000}@(?=[\w\[])")
"""User and password in an address that lacks `//`."""
QUERY = re.compile(r"([?&;#]([\w.%-]+)=)[^\s&;#\"'<>]+")
"""A name and its value in an address: `?token=...`, `&X-Amz-Signature=...`."""
HARMLESS = frozenset((
    "page", "p", "n", "x", "y", "q", "query", "search", "sort", "order", "limit", "offset", "start", "end",
    "rows", "fields", "format", "type", "lang", "language", "locale", "version", "v", "sv", "rev", "revision",
    "ref", "branch", "tag", "commit", "year", "month", "date", "name", "title", "file", "filename", "path",
    "subset", "split", "config", "part", "dataset", "design", "style", "raw", "dl", "download", "export",
    "api-version", "gid", "id",
))  # fmt: skip
"""Names whose values are no secrets and are shown. The values of all others are hidden: `pass`, `pin`, `X-Amz-Credential`."""

CONFLICT = re.compile(r"^(<{7}|={7}|>{7})( |$)", re.MULTILINE)
"""What git writes around two sides of a merge."""


def without_secrets(text: str) -> str:
    """Return a text with its secrets removed.

    `postgresql://joe:secret@host/db` becomes `postgresql://host/db`, and `?token=abc` becomes `?token=***`.
    """
    text = WITHOUT_SCHEME.sub("", USER.sub("", text))
    return QUERY.sub(lambda match: match[0] if match[2].lower() in HARMLESS else f"{match[1]}***", text)


def one_line(error: BaseException) -> str:
    """Return the message of an error in one line, cut to 200 characters."""
    return " ".join(str(error).split())[:200] or type(error).__name__


def format_counts(counts: Mapping[str, int]) -> str:
    """Return counts as text, without zeros: `3 short, 1 duplicates`."""
    return ", ".join(f"{count:,} {reason.replace('_', ' ')}" for reason, count in counts.items() if count) or "nothing"


OUT_OF_MEMORY = ("out of memory", "not enough memory", "can't allocate memory")
"""Messages of torch on a GPU and on CPUs."""


class SesameError(Exception):
    """An error of one line that says where it is and how to mend it, without secrets. A stage prints it and exits with `status`, without a
    traceback."""

    status = 2
    """Exit status of a stage that would fail again, and is therefore not retried."""

    def __init__(self, message: str):
        super().__init__(without_secrets(message))


class Diverged(SesameError):
    """A training whose loss became infinite or no number."""

    cost: dict = {}
    """What the training counted up to then: tokens, flops, gpus, earlier_seconds."""


class Unreachable(SesameError):
    """An error that may disappear by itself: no network, a server that is busy or down. The stage is retried."""

    status = os.EX_TEMPFAIL  # 75
