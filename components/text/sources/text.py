"""Bytes to lines of text, with the place of what is wrong."""

from collections.abc import Iterator
from typing import Literal

import numpy as np

from components.core.errors import SesameError
from components.text.sources.file import SourceFile

BOM = b"\xef\xbb\xbf"
BINARY = {
    b"\x1f\x8b": "compressed by gzip; let its name end in .gz",
    b"\x28\xb5\x2f\xfd": "compressed by zstd; decompress it first",
    b"\xfd7zXZ\0": "compressed by xz; decompress it first",
    b"BZh91AY&SY": "compressed by bzip2; decompress it first",
    b"PK\x03\x04": "a zip archive; unpack it, or save a spreadsheet as CSV",
    b"version https://git-lfs": "a pointer of Git LFS; bring the file itself (`git lfs pull`)",
    b"\xff\xfe\0\0": "UTF-32; convert it (`iconv -f utf-32 -t utf-8`)",
    b"\xff\xfe": "UTF-16; convert it (`iconv -f utf-16 -t utf-8`)",
    b"\xfe\xff": "UTF-16; convert it (`iconv -f utf-16 -t utf-8`)",
}
"""First bytes of files that are no UTF-8 text -> what they are, and the cure."""


def fields(line: str) -> list[str]:
    """A line taken apart at tabs, where there are none at blanks. Other white space belongs to a word:
    `new<U+00A0>york` is one."""
    return line.split("\t") if "\t" in line else [field for field in line.split(" ") if field]


def decimal(number: float | None, kind: str) -> float | None:
    """A number that is stored as numpy's `kind`, as it is written: 0.6 is 0.6000000238418579 in 32 bits, and above a
    threshold of 0.6."""
    return float(str(np.dtype(kind).type(number))) if number is not None and kind in ("float16", "float32") else number


def lines(file: SourceFile, errors: Literal["strict", "replace"] = "strict") -> Iterator[tuple[int, str]]:
    """`(number from 1, line)` without line ends (LF or CRLF) and byte-order mark.

    Raises SesameError with file and line on a file of another format, on a NUL byte (that is no text), on invalid UTF-8 unless `errors` is
    `replace` (then it becomes U+FFFD), on a file whose lines end in CR alone, and on a damaged archive.
    """
    with file.open() as stream:
        for number, raw in enumerate(stream, start=1):
            if number == 1:
                if found := next((cure for first, cure in BINARY.items() if raw.startswith(first)), None):
                    raise SesameError(f"{file.name}: no text: it is {found}")
                raw = raw.removeprefix(BOM)
                if b"\r" in raw.rstrip(b"\r\n") and not raw.endswith(b"\n"):  # all of the file
                    raise SesameError(
                        f"{file.name}: one line, with CR in it, and lines end in LF or CRLF: convert the file by `tr '\\r' '\\n'`"
                    )
            if b"\0" in raw:
                raise SesameError(f"{file.name}, line {number}: a NUL byte: this is a binary file or UTF-16, and UTF-8 text is expected")
            try:
                yield number, raw.rstrip(b"\r\n").decode("utf-8", errors)
            except UnicodeDecodeError as error:
                raise SesameError(
                    f"{file.name}, line {number}: invalid UTF-8 (byte 0x{raw[error.start]:02x} at {error.start}); "
                    "convert the file (`iconv -f cp1252 -t utf-8`, where it is from Windows or latin1), or set `errors: replace` in the "
                    "reader of a corpus, which loses these characters"
                ) from None
