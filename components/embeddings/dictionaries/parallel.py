"""Word pairs from sentences and their translations, with IBM model 1 (Brown et al. 1993, section 4.2) in both directions."""

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
    """Words that are each other's most probable translation to learn from, and the pairs of a list as test.

    Raises SesameError where the texts are not two files with equal numbers of lines, or none of their pairs is in the vocabularies.
    """
    lowercase = lowered(settings.lowercase, source, target)
    listed, otherwise = (list(read(settings.test, case)) for case in (lowercase, (not lowercase[0], not lowercase[1])))
    golds = by_word(listed)
    pairs = translated(*_sentences(settings, lowercase), settings)
    free = [pair for pair in pairs if pair[0] not in golds]
    frequency, there = {word: row for row, word in enumerate(source)}, set(target)
    known = sorted((pair for pair in free if pair[0] in frequency and pair[1] in there), key=lambda pair: frequency[pair[0]])
    if not known:
        raise SesameError(
            f"dictionary.texts: none of its {len(free)} word pairs is in the two vocabularies; are its files the other way round?"
        )
    check("test", listed, otherwise, set(source), there)
    return Dictionary(known, golds, {"asked_for": len(pairs) - len(free), "not_in_the_vocabularies": len(free) - len(known)})


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
        times = Counter(word for sentence in side for word in dict.fromkeys(sentence))  # a set would change the order
        frequent.append([word for word, count in times.items() if count >= settings.min_count])
    rows = [{word: i for i, word in enumerate(words)} for words in frequent]
    ids = [
        [sorted({row[word] for word in sentence if word in row}) for sentence in side]
        for side, row in zip((here, there), rows, strict=True)
    ]
    forward, backward = _best(*ids, len(frequent[0]), settings.rounds), _best(*reversed(ids), len(frequent[1]), settings.rounds)
    return [(frequent[0][word], frequent[1][best]) for word, best in forward.items() if backward.get(best) == word]


def _best(here: list[list[int]], there: list[list[int]], size: int, rounds: int) -> dict[int, int]:
    """The most probable translation of each word. The source of a word in a translation is a word of the sentence, or the empty word
    (`size`)."""
    links = [
        (word, other, i)
        for i, (sentence, others) in enumerate(zip(here, there, strict=True)) for other in others for word in (*sentence, size)
    ]  # fmt: skip
    words, others, sentences = np.array(links, dtype=np.int64).reshape(-1, 3).T
    _, slots = np.unique(sentences * (others.max(initial=0) + 1) + others, return_inverse=True)  # one slot per word to explain
    best = most_probable(words, others, slots, rounds)
    best.pop(size, None)
    return best
