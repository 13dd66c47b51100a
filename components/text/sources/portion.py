"""Some files of another source, or some bytes of one of them: what a task of a sharded corpus reads. No user declares it."""

import io
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import BinaryIO

from components import params
from components.text import sources
from components.text.sources.file import SourceFile


@dataclass(frozen=True)
class Portion:
    """Files `first` to `stop` of a source; with an `end` the bytes from `begin` on of the first alone."""

    part: int
    """Of the corpus, by its number from 0."""
    source: params.Source
    first: int
    stop: int
    begin: int = 0
    end: int | None = None
    stamp: tuple[int, ...] = ()
    """Size and time of each file's last change, where it has them."""
    kind: str = "portion"

    @property
    def shown(self) -> str:
        """For messages."""
        return self.source.shown


class _Bytes(io.RawIOBase):
    """Some bytes of a stream."""

    def __init__(self, stream: BinaryIO, begin: int, end: int):
        self.stream, self.left = stream, end - begin
        stream.seek(begin)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        read = self.stream.readinto(memoryview(buffer)[: self.left])
        self.left -= read
        return read

    def close(self) -> None:
        self.stream.close()
        super().close()


def open_files(portion: Portion) -> Iterator[SourceFile]:
    """The files, not yet opened. Raises SesameError as the source does."""
    for file in islice(sources.open_files(portion.source), portion.first, portion.stop):
        if portion.end is None:
            yield file
        else:
            yield SourceFile(file.name, lambda file=file: io.BufferedReader(_Bytes(file.raw(), portion.begin, portion.end), 1 << 20))
