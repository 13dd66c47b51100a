"""Files of a bucket, or of what else fsspec reaches: streamed, none of them is kept here."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import BinaryIO

import fsspec

from components import params
from components.core.errors import SesameError, Unreachable, one_line
from components.text.sources.file import SourceFile

BLOCK = 1 << 22
"""Bytes that are asked for at a time."""


def open_files(source: params.BucketSource) -> Iterator[SourceFile]:
    """The files at the addresses, in their order and sorted within one, the first `max_files` of them.

    Raises SesameError for an address that can't be one, without a file, or not for us; Unreachable where nobody answers.
    """
    yield from islice(_all(source), source.max_files)


def _all(source: params.BucketSource) -> Iterator[SourceFile]:
    for address in source.addresses:
        try:
            files, path = fsspec.url_to_fs(address, use_listings_cache=False)
        except (ImportError, ValueError) as error:
            raise SesameError(f"bucket: {address}: {one_line(error)}") from None
        with _answering(address):
            paths = sorted(name for name, about in files.glob(path, detail=True).items() if about["type"] == "file")
        if not paths:
            raise SesameError(f"bucket: nothing at {address!r}; check the address, and what the keys in the environment may list")
        for path in paths:
            yield SourceFile(files.unstrip_protocol(path), lambda files=files, path=path: _open(files, path))


def _open(files: fsspec.AbstractFileSystem, path: str) -> BinaryIO:
    return io.BufferedReader(Remote(files, path), BLOCK)


@contextmanager
def _answering(place: str) -> Iterator[None]:
    """What goes wrong on the way is a line, of whatever library it comes from. Raises as `open_files`."""
    try:
        yield
    except (FileNotFoundError, PermissionError, ValueError) as error:  # the last of a glob that is none
        raise SesameError(f"bucket: {place}: {one_line(error)}") from None
    except Exception as error:  # botocore's, aiohttp's, the system's
        raise Unreachable(f"bucket: {place} can't be read ({one_line(error)}); check its address and the keys in the environment") from None


class Remote(io.RawIOBase):
    """A file there, which may be read from anywhere on."""

    def __init__(self, files: fsspec.AbstractFileSystem, path: str):
        self.place = files.unstrip_protocol(path)
        with _answering(self.place):
            self.stream = files.open(path, "rb", block_size=BLOCK, cache_type="readahead")
            self.version = int(files.ukey(path), 16)
            """Another one when the file has changed."""
        self.size: int = self.stream.size
        """Bytes."""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self.stream.seek(offset, whence)

    def readinto(self, buffer) -> int:
        with _answering(self.place):
            return self.stream.readinto(buffer)

    def close(self) -> None:
        if not self.closed:
            self.stream.close()
        super().close()
