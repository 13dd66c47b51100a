"""Code that readers share: names of labels, and marked spans in a sentence."""

from collections.abc import Iterator

from components.core.errors import SesameError
from components.tasks import Example
from components.text.sources import tables
from components.text.sources.tables import text

Examples = Iterator[tuple[str, str, Example]]
"""`(place, group, example)`: the place is for messages, and rows of a group stay in the same split."""

TRUTH = {"false": "false", "true": "true", "0": "false", "1": "true"}
"""Spelling of a truth value in the files -> name of the label."""


def unknown_label(place: str, raw: str, allowed: list[str]) -> SesameError:
    """Return the error for an undeclared label."""
    hint = "; -1 stands for no label: is `labelled: false` missing?" if raw == "-1" else ""
    return SesameError(f"{place}: unknown label {raw!r} (allowed: {', '.join(allowed)}{hint})")


def label_name(place: str, row: tables.Row, names: dict[str, str]) -> str:
    """Return the name of a row's label. Raise SesameError for an unknown spelling."""
    raw = text(place, row, "label").lower()
    if raw not in names:
        raise unknown_label(place, raw, list(names))
    return names[raw]


def mark(sentence: str, spans: list[tuple[int, int, str]]) -> tuple[str, list[tuple[int, int]]]:
    """Put each span, `(first character, end, mark)`, between two marks; return the sentence and the new spans.

    The new spans, `(first character, end)`, include the marks. Spans may be nested.
    """
    # Sorted, so that at one position ends come before beginnings, and of two beginnings (or ends) the longer (shorter) span first.
    cuts = [(first, 1, -end, i, sign) for i, (first, end, sign) in enumerate(spans)]
    cuts += [(end, 0, -first, i, sign) for i, (first, end, sign) in enumerate(spans)]
    marked, copied, firsts, ends = "", 0, {}, {}
    for at, opens, _, i, sign in sorted(cuts):
        marked += sentence[copied:at] + sign
        copied = at
        if opens:
            firsts[i] = len(marked) - 1
        else:
            ends[i] = len(marked)
    return marked + sentence[copied:], [(firsts[i], ends[i]) for i in range(len(spans))]
