"""A file by its address."""

import re
from collections.abc import Iterator
from urllib.parse import unquote, urlsplit

from components import params
from components.text.sources import archive, download
from components.text.sources.file import SourceFile


def open_files(source: params.UrlSource) -> Iterator[SourceFile]:
    """The file itself, or with `members` what it holds as an archive. Raises SesameError as `download.fetch` does."""
    # The address' last part as a plain name: it may hold slashes, a leading dot, NUL bytes, or nothing.
    filename = re.sub(r"[^\w.+-]", "_", unquote(urlsplit(source.url).path).rpartition("/")[2]).lstrip(".")[-100:] or "download"
    cure = f"check the address, or put the file at {download.cached_path(filename, source.sha256)} by hand"
    path = download.fetch(filename, source.sha256, lambda: source.url, cure)
    return archive.open_members(path, source.members) if source.members else iter([SourceFile(filename, lambda: path.open("rb"))])
