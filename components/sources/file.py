"""One file of a source."""

import gzip
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO


@dataclass(frozen=True)
class SourceFile:
    """A file that can be opened, as often as wanted."""

    name: str
    """For messages: `archive.whl: folder/member.txt.gz`."""
    raw: Callable[[], BinaryIO]
    """Opens the bytes as they are stored."""

    def open(self) -> BinaryIO:
        """A binary stream of the content; `.gz` is decompressed."""
        stream = self.raw()
        return gzip.GzipFile(fileobj=stream) if self.name.endswith(".gz") else stream
