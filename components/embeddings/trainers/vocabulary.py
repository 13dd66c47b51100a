"""What kinds of vectors share."""

from collections.abc import Iterable, Sequence

from components import params
from components.core.errors import SesameError


def check(words: int, needed: int, settings: params.Vectors) -> None:
    """Raises SesameError where fewer `words` are frequent enough than vectors can be trained of."""
    if words < needed:
        raise SesameError(
            f"{words} words occur min_count ({settings.min_count}) times or more in corpus {settings.corpus!r}, {needed} are needed: "
            "lower min_count or take more text"
        )


def standing_beside(words: Sequence[str], sentences: Iterable[Sequence[str]]) -> list[int]:
    """The places of the words that are next to another one of them somewhere; says how many do not, of which nothing
    can be learned."""
    known, met = set(words), set()
    for sentence in sentences:
        own = [word for word in sentence if word in known]
        met.update(own if len(own) > 1 else ())
    return told([i for i, word in enumerate(words) if word in met], len(words))


def told(there: list[int], of: int) -> list[int]:
    """The places of those that have a vector, of so many; says how many have none."""
    if alone := of - len(there):
        print(f"{alone:,} of {of:,} words have nothing beside them to learn from, and so no vector", flush=True)
    return there
