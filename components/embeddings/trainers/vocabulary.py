"""What kinds of vectors share."""

from components import params
from components.core.errors import SesameError


def check(words: int, needed: int, settings: params.Vectors) -> None:
    """Raises SesameError where fewer `words` are frequent enough than vectors can be trained of."""
    if words < needed:
        raise SesameError(
            f"{words} words occur min_count ({settings.min_count}) times or more in corpus {settings.corpus!r}, {needed} are needed: "
            "lower min_count or take more text"
        )
