"""Assign bytes of files to shards: the files of all parts are concatenated and cut into as many equal lengths as there are shards.

A plain file of lines is cut where a document ends; any other (gzipped, in an archive, a single document) goes to the shard in which it
begins.
"""

import io
import os
from dataclasses import dataclass
from typing import BinaryIO

from components import params
from components.core.errors import SesameError
from components.text import sources
from components.text.sources import bucket
from components.text.sources.portion import Portion

UNKNOWN = 1 << 20
"""Bytes that a file of unknown size (known only by unpacking it) counts as: such files are distributed by number."""
LARGEST = 1 << 28
"""Maximum bytes of a file that is a single document, since each document is held in memory."""


@dataclass(frozen=True)
class _File:
    part: int
    number: int
    """In its source; None of a source of rows."""
    size: int
    changed: int
    cuts: bool
    """Whether the file can be cut."""


def portions(name: str, corpus: params.Corpus) -> list[list[Portion]]:
    """What each shard reads, in the order of the text. Raise SesameError if a source cannot be opened or a document is too large."""
    files = [file for number, part in enumerate(corpus.parts) for file in _files(f"corpora.{name}, part {number + 1}", number, part)]
    whole = sum(file.size for file in files)
    bounds = [whole * rank // corpus.shards for rank in range(corpus.shards + 1)]
    shards: list[list[Portion]] = [[] for _ in range(corpus.shards)]
    offset, rank = 0, 0
    for file in files:
        while bounds[rank + 1] <= offset:
            rank += 1
        if file.cuts:
            _cut(corpus.parts[file.part], file, [bound - offset for bound in bounds], rank, shards)
        else:
            _append(shards[rank], corpus.parts[file.part].source, file)
        offset += file.size
    return shards


def _append(shard: list[Portion], source: params.Source, file: _File) -> None:
    """Append a whole file, to the same portion as the file before it if possible, so that an archive is opened once."""
    stamp = (file.size, file.changed)
    last = shard[-1] if shard else None
    if last and (last.part, last.stop, last.end) == (file.part, file.number, None):
        shard[-1] = Portion(file.part, source, last.first, file.number + 1, stamp=(*last.stamp, *stamp))
    else:
        shard.append(Portion(file.part, source, file.number, file.number + 1, stamp=stamp))


def _cut(part: params.CorpusPart, file: _File, bounds: list[int], rank: int, shards: list[list[Portion]]) -> None:
    """Cut a file among the shards from `rank` on; `bounds` are the first bytes of the shards, counted from the start of the file."""
    opened = list(sources.open_files(part.source))[file.number]
    with opened.raw() as stream:
        begin = 0
        while begin < file.size:
            stop, following = _document_end(stream, bounds[rank + 1], file.size, part.reader)
            if following > begin:
                shards[rank].append(Portion(
                    file.part, part.source, file.number, file.number + 1, begin, stop, (file.size, file.changed),
                ))  # fmt: skip
            begin, rank = max(begin, following), rank + 1


def _document_end(stream: BinaryIO, position: int, size: int, reader: params.Reader) -> tuple[int, int]:
    """The end of the first document that ends at or after `position`, and the start of the next one."""
    if position >= size:
        return size, size
    stream.seek(position - 1)
    stream.readline()  # the rest of the line at `position`; if a line starts there, nothing of it
    if getattr(reader, "document", "line") == "line":
        return stream.tell(), stream.tell()
    stop = stream.tell()
    while line := stream.readline():
        if not line.decode("utf-8", "replace").strip():
            return stop, stream.tell()
        stop = stream.tell()
    return size, size


def _files(place: str, number: int, part: params.CorpusPart) -> list[_File]:
    if sources.brings_rows(part.source.kind):
        return [_File(number, 0, UNKNOWN, 0, cuts=False)]
    reader, files = part.reader, []
    by_lines = getattr(reader, "document", "") in ("blank_line", "line") or reader.format == "jsonl"
    by_lines |= reader.format == "tsv" and not reader.header and reader.fields is not None  # else its first line says how the others are
    for index, file in enumerate(sources.open_files(part.source)):
        with file.raw() as stream:
            known = _stat(stream)
        packed = file.name.endswith(".gz")
        if known and known[0] > LARGEST and not packed and getattr(reader, "document", "") == "file":
            raise SesameError(
                f"{place}: {file.name} is one document of {known[0] / 1e9:.1f} GB, and documents are held in memory; "
                "set `document: blank_line` or `line` in its reader"
            )
        if known:
            files.append(_File(number, index, max(known[0], 1), known[1], by_lines and not packed and known[0] > 0))
        else:
            files.append(_File(number, index, UNKNOWN, 0, cuts=False))
    return files


def _stat(stream: BinaryIO) -> tuple[int, int] | None:
    """Size in bytes and time of the last change of a plain file, local or in a bucket; None for a member of an archive."""
    if isinstance(remote := getattr(stream, "raw", None), bucket.Remote):
        return remote.size, remote.version
    try:
        known = os.fstat(stream.fileno())
        return known.st_size, known.st_mtime_ns
    except (AttributeError, io.UnsupportedOperation):
        return None
