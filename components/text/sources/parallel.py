"""Sentences and their translations, in two files."""

from collections.abc import Iterator
from itertools import zip_longest
from typing import Literal

from components import params
from components.core.errors import SesameError
from components.text import sources
from components.text.sources.text import lines


def translations(place: str, source: params.Source, errors: Literal["strict", "replace"] = "strict") -> Iterator[tuple[str, str]]:
    """(line, its translation). `place` is what names the source in messages.

    Raises SesameError where these are not two files of as many lines, with both counts.
    """
    files = list(sources.open_files(source))
    if len(files) != 2:
        raise SesameError(f"{place}: two files expected, the source's sentences and their translations; {len(files)} found")
    here, there = 0, 0
    for one, other in zip_longest(*(lines(file, errors) for file in files)):
        here, there = here + (one is not None), there + (other is not None)
        if one and other and here == there:
            yield one[1], other[1]
    if here != there:
        raise SesameError(f"{files[0].name} has {here} lines and {files[1].name} {there}: not each other's translations")
