"""Checks that the kinds of vectors share."""

from collections.abc import Iterable, Sequence

from components import params
from components.core.errors import SesameError


def check(words: int, needed: int, settings: params.Vectors) -> None:
    """Raises SesameError where fewer `words` are frequent enough than are `needed`."""
    if words < needed:
        raise SesameError(
            f"{words} words occur min_count ({settings.min_count}) times or more in corpus {settings.corpus!r}, {needed} are needed: "
            "lower min_count or take more text"
        )


def with_neighbours(words: Sequence[str], sentences: Iterable[Sequence[str]]) -> list[int]:
    """The indices of the words that occur next to another one of them; prints how many do not, and so have no vector."""
    known, neighbours = set(words), set()
    for sentence in sentences:
        present = [word for word in sentence if word in known]
        neighbours.update(present if len(present) > 1 else ())
    return report([i for i, word in enumerate(words) if word in neighbours], len(words))


def report(kept: list[int], total: int) -> list[int]:
    """The indices of the words with a vector; prints how many have none."""
    if missing := total - len(kept):
        print(f"{missing:,} of {total:,} words have no neighbours to learn from, and so no vector", flush=True)
    return kept
