"""Each word is its own translation, for two spaces of one language."""

from collections import Counter

from components import params
from components.embeddings.dictionaries import Dictionary, drawn, spelled_alike


def build(settings: params.IdenticalDictionary, source: list[str], target: list[str], seed: int) -> Dictionary:
    """The words of both vocabularies, as translations of themselves."""
    shared = [word for word, _ in spelled_alike(source, target)]
    return drawn(shared, {word: Counter([word]) for word in shared}, target, settings.train, settings.test, seed)
