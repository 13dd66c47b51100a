"""One file of a source."""

import errno
import gzip
import lzma
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO

from components.core.errors import SesameError, one_line

DAMAGED = (zlib.error, lzma.LZMAError, zipfile.BadZipFile, tarfile.TarError, struct.error, EOFError, OSError, RuntimeError)
"""What reading a broken, encrypted or strangely packed archive or member raises; RuntimeError is zipfile's for the last two."""


@dataclass(frozen=True)
class SourceFile:
    """A file that can be opened, as often as wanted."""

    name: str
    """For messages: `archive.whl: folder/member.txt.gz`."""
    raw: Callable[[], BinaryIO]
    """Opens the bytes as they are stored."""

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """A binary stream of the content; `.gz` is decompressed. Raises SesameError, also while it is read, when it can't be."""
        try:
            with self.raw() as stream:
                yield gzip.GzipFile(fileobj=stream) if self.name.endswith(".gz") else stream
        except DAMAGED as error:
            if isinstance(error, OSError) and error.errno == errno.ENOSPC:  # of where it is written to
                raise
            raise SesameError(f"{self.name}: can't be read, damaged or encrypted: {one_line(error)}") from None
