"""Word pairs out of sentences and their translations, by IBM's first model (Brown et al. 1993, section 4.2) in both directions."""

from collections import Counter

import numpy as np

from components import params
from components.core.errors import SesameError
from components.embeddings.dictionaries import Dictionary
from components.embeddings.dictionaries.pairs import by_word, check, lowered, read
from components.embeddings.space import WORD, written
from components.embeddings.word_translation import most_probable
from components.text.sources.parallel import translations


def build(settings: params.ParallelDictionary, source: list[str], target: list[str], seed: int) -> Dictionary:
    """Words that are each other's most probable translation, and the pairs of a list to ask for.

    Raises SesameError where the texts are not two files of as many lines, or no pair of theirs is in the vocabularies.
    """
    lowercase = lowered(settings.lowercase, source, target)
    listed, otherwise = (list(read(settings.test, own)) for own in (lowercase, (not lowercase[0], not lowercase[1])))
    golds = by_word(listed)
    found = translated(*_sentences(settings, lowercase), settings)
    free = [pair for pair in found if pair[0] not in golds]
    frequency, there = {word: row for row, word in enumerate(source)}, set(target)
    known = sorted((pair for pair in free if pair[0] in frequency and pair[1] in there), key=lambda pair: frequency[pair[0]])
    if not known:
        raise SesameError(
            f"dictionary.texts: none of its {len(free)} word pairs is in the two vocabularies; are its files the other way round?"
        )
    check("test", listed, otherwise, set(source), there)
    return Dictionary(known, golds, {"asked_for": len(found) - len(free), "not_in_the_vocabularies": len(free) - len(known)})


def _sentences(settings: params.ParallelDictionary, lowercase: tuple[bool, bool]) -> tuple[list[list[str]], list[list[str]]]:
    here, there = [], []
    for pair in translations("dictionary.texts", settings.texts):
        for side, line, small in zip((here, there), pair, lowercase, strict=True):
            side.append(WORD.findall(written(line, small)))
    return here, there


def translated(here: list[list[str]], there: list[list[str]], settings: params.ParallelDictionary) -> list[tuple[str, str]]:
    """Pairs of words, in at least `min_count` sentences each, that are each other's most probable translation."""
    frequent = []
    for side in (here, there):
        times = Counter(word for sentence in side for word in dict.fromkeys(sentence))  # a set has another order each run
        frequent.append([word for word, count in times.items() if count >= settings.min_count])
    rows = [{word: i for i, word in enumerate(words)} for words in frequent]
    ids = [
        [sorted({row[word] for word in sentence if word in row}) for sentence in side]
        for side, row in zip((here, there), rows, strict=True)
    ]
    ahead, behind = _best(*ids, len(frequent[0]), settings.rounds), _best(*reversed(ids), len(frequent[1]), settings.rounds)
    return [(frequent[0][word], frequent[1][best]) for word, best in ahead.items() if behind.get(best) == word]


def _best(here: list[list[int]], there: list[list[int]], size: int, rounds: int) -> dict[int, int]:
    """For each word its most probable translation. A word of a translated sentence comes of one of the words of the other, or of none of
    them (`size` stands for it)."""
    met = [(word, other, i) for i, (own, others) in enumerate(zip(here, there, strict=True)) for other in others for word in (*own, size)]
    words, others, sentences = np.array(met, dtype=np.int64).reshape(-1, 3).T
    _, slots = np.unique(sentences * (others.max(initial=0) + 1) + others, return_inverse=True)  # a word of a sentence, to be explained
    best = most_probable(words, others, slots, rounds)
    best.pop(size, None)
    return best
