"""Each word is its own translation: two spaces of one language."""

from collections import Counter

from components import params


def translations(settings: params.IdenticalDictionary, source: list[str], target: list[str]) -> tuple[list[str], dict[str, Counter]]:
    """The words of both vocabularies, each known once as itself."""
    there = set(target)
    shared = [word for word in source if word in there]
    return shared, {word: Counter([word]) for word in shared}
