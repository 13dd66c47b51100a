"""What is said to the person at the keyboard: errors of one line, and addresses without their secrets."""

import os
import re
from collections.abc import Mapping

USER = re.compile(r"(?<=://)(?:[^\s/?#\"'<>]*|[^\s/:@\"'<>]*:[^\s@\"'<>]*)@")
"""User and password before the host; SQLAlchemy takes an unquoted slash in a password, too. A lone user name may be a token."""
WITHOUT_SCHEME = re.compile(r"(?<![\w.+%-])[\w.+%-]*:[^\s/@\"'<>]{1,2000}@(?=[\w\[])")
"""User and password of what is no address, since `//` is missing, but was meant for one."""
QUERY = re.compile(r"([?&;#]([\w.%-]+)=)[^\s&;#\"'<>]+")
"""A name and its value in an address: `?token=...`, `&X-Amz-Signature=...`."""
HARMLESS = frozenset((
    "page", "p", "n", "x", "y", "q", "query", "search", "sort", "order", "limit", "offset", "start", "end",
    "rows", "fields", "format", "type", "lang", "language", "locale", "version", "v", "sv", "rev", "revision",
    "ref", "branch", "tag", "commit", "year", "month", "date", "name", "title", "file", "filename", "path",
    "subset", "split", "config", "part", "dataset", "design", "style", "raw", "dl", "download", "export",
    "api-version", "gid", "id",
))  # fmt: skip
"""Names whose values open nothing and are shown. All others may: `pass`, `pin`, `X-Amz-Credential`."""


def without_secrets(text: str) -> str:
    """A text as it may be shown or kept.

    `postgresql://joe:secret@host/db` in it becomes `postgresql://host/db`, and `?token=abc` `?token=***`.
    """
    return QUERY.sub(
        lambda found: found[0] if found[2].lower() in HARMLESS else f"{found[1]}***", WITHOUT_SCHEME.sub("", USER.sub("", text))
    )


def one_line(error: BaseException) -> str:
    """What a library says, at no more than a line."""
    return " ".join(str(error).split())[:200] or type(error).__name__


def counted(reasons: Mapping[str, int]) -> str:
    """`3 short, 1 duplicates`: of those that there are any of."""
    return ", ".join(f"{count:,} {reason.replace('_', ' ')}" for reason, count in reasons.items() if count) or "nothing"


OUT_OF_MEMORY = ("out of memory", "not enough memory", "can't allocate memory")
"""What torch says on a GPU and on CPUs."""


class SesameError(Exception):
    """One clear line that names the place and the cure, without secrets. A stage prints it and exits with `status`, without a traceback."""

    status = 2
    """What was tried can't work the next time, either: a stage that exits so is not tried again."""

    def __init__(self, message: str):
        super().__init__(without_secrets(message))


class Unreachable(SesameError):
    """What may pass by itself: no network, a server that is busy or broken."""

    status = os.EX_TEMPFAIL  # 75
