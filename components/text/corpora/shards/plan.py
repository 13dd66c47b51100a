"""Which bytes of which file are whose: the files of all parts, one behind the other, cut into as many equal lengths as there are shards.

A plain file of lines is cut where a document ends; another (gzipped, of an archive, of one document) goes whole to the shard in which it
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
"""Bytes that a file counts whose size only unpacking it would tell: such files are shared out by number."""
LARGEST = 1 << 28
"""Bytes of a file that is one document, at most: documents are held in memory one by one."""


@dataclass(frozen=True)
class _File:
    part: int
    number: int
    """In its source; None of a source of rows."""
    size: int
    changed: int
    cuts: bool
    """Whether its bytes can be shared out."""


def portions(name: str, corpus: params.Corpus) -> list[list[Portion]]:
    """What each shard reads, in the order of the text. Raises SesameError where a source can't be opened, or a document is too large."""
    files = [file for number, part in enumerate(corpus.parts) for file in _files(f"corpora.{name}, part {number + 1}", number, part)]
    whole = sum(file.size for file in files)
    bounds = [whole * rank // corpus.shards for rank in range(corpus.shards + 1)]
    found: list[list[Portion]] = [[] for _ in range(corpus.shards)]
    offset, rank = 0, 0
    for file in files:
        while bounds[rank + 1] <= offset:
            rank += 1
        if file.cuts:
            _cut(corpus.parts[file.part], file, [bound - offset for bound in bounds], rank, found)
        else:
            _append(found[rank], corpus.parts[file.part].source, file)
        offset += file.size
    return found


def _append(own: list[Portion], source: params.Source, file: _File) -> None:
    """One whole file more; behind the one before it in the same portion, so that an archive is opened once."""
    stamp = (file.size, file.changed)
    last = own[-1] if own else None
    if last and (last.part, last.stop, last.end) == (file.part, file.number, None):
        own[-1] = Portion(file.part, source, last.first, file.number + 1, stamp=(*last.stamp, *stamp))
    else:
        own.append(Portion(file.part, source, file.number, file.number + 1, stamp=stamp))


def _cut(part: params.CorpusPart, file: _File, bounds: list[int], rank: int, found: list[list[Portion]]) -> None:
    """Share out a file from a shard on; `bounds` are the shards' first bytes, counted from the file's."""
    opened = list(sources.open_files(part.source))[file.number]
    with opened.raw() as stream:
        begin = 0
        while begin < file.size:
            stop, following = _document_end(stream, bounds[rank + 1], file.size, part.reader)
            if following > begin:
                found[rank].append(Portion(file.part, part.source, file.number, file.number + 1, begin, stop, (file.size, file.changed)))
            begin, rank = max(begin, following), rank + 1


def _document_end(stream: BinaryIO, position: int, size: int, reader: params.Reader) -> tuple[int, int]:
    """Where the first document ends that ends at a position or behind it, and where the next one begins."""
    if position >= size:
        return size, size
    stream.seek(position - 1)
    stream.readline()  # what the position stands in, to its end; nothing of the next line where it is the first of one
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
    """Size in bytes and last change of a plain file, here or in a bucket; None of a member of an archive."""
    if isinstance(remote := getattr(stream, "raw", None), bucket.Remote):
        return remote.size, remote.version
    try:
        known = os.fstat(stream.fileno())
        return known.st_size, known.st_mtime_ns
    except (AttributeError, io.UnsupportedOperation):
        return None
