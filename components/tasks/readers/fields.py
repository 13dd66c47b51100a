"""What readers share: labels by their names, and stretches of a sentence between marks."""

from collections.abc import Iterator

from components.core.errors import SesameError
from components.tasks import Example
from components.text.sources import tables
from components.text.sources.tables import text

Examples = Iterator[tuple[str, str, Example]]
"""`(place, group, example)`: the place is for messages, and rows of one group stay on the same side of a split."""

TRUTH = {"false": "false", "true": "true", "0": "false", "1": "true"}
"""How yes and no are written in the files -> the label's name."""


def unknown_label(place: str, raw: str, allowed: list[str]) -> SesameError:
    """The error for a label that was not declared."""
    hint = "; -1 stands for no label: is `labelled: false` missing?" if raw == "-1" else ""
    return SesameError(f"{place}: unknown label {raw!r} (allowed: {', '.join(allowed)}{hint})")


def label_name(place: str, row: tables.Row, names: dict[str, str]) -> str:
    """The name of a row's label. Raises SesameError where it is none of those that the files may write."""
    raw = text(place, row, "label").lower()
    if raw not in names:
        raise unknown_label(place, raw, list(names))
    return names[raw]


def mark(sentence: str, stretches: list[tuple[int, int, str]]) -> tuple[str, list[tuple[int, int]]]:
    """The sentence with each stretch, `(first character, end, mark)`, between two marks, and where the stretches now stand.

    These places, `(first character, end)`, include the marks. A stretch may lie in another: what opens first closes last.
    """
    # Sorted, so that at one place ends come before beginnings, and of two beginnings (or ends) the longer (shorter) stretch first.
    cuts = [(first, 1, -end, i, sign) for i, (first, end, sign) in enumerate(stretches)]
    cuts += [(end, 0, -first, i, sign) for i, (first, end, sign) in enumerate(stretches)]
    marked, copied, firsts, ends = "", 0, {}, {}
    for at, opens, _, i, sign in sorted(cuts):
        marked += sentence[copied:at] + sign
        copied = at
        if opens:
            firsts[i] = len(marked) - 1
        else:
            ends[i] = len(marked)
    return marked + sentence[copied:], [(firsts[i], ends[i]) for i in range(len(stretches))]
