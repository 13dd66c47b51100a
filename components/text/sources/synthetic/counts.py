"""Sentences that obey counts: the words and vowels of a random sentence are counted; the counts are the problem, the
sentence the solution.

`words 5 a 3 e 2 i 0 o 1 u 0` is solved by `the cat chased a dog`, and by every other sentence of the grammar with these
counts: a verb between noun phrases, of which the later ones may stand behind a preposition.
"""

import re
from collections import Counter

import numpy as np

DETERMINERS, PREPOSITIONS = ["a", "the", "this", "every", "some"], ["near", "under", "behind", "without", "beside"]
ADJECTIVES = ["big", "small", "old", "young", "red", "green", "happy", "tired", "quiet", "clever"]
NOUNS = [
    "cat", "dog", "bird", "horse", "girl", "boy", "woman", "man", "teacher", "farmer", "house", "tree", "river", "book",
    "apple", "window", "garden", "song", "letter", "king",
]  # fmt: skip
VERBS = [
    "saw", "chased", "liked", "found", "heard", "followed", "touched", "painted", "forgot", "watched", "drew", "carried",
]  # fmt: skip
WORDS = {"d": DETERMINERS, "a": ADJECTIVES, "n": NOUNS, "v": VERBS, "p": PREPOSITIONS}
CLASS = {word: kind for kind, words in WORDS.items() for word in words}
SENTENCE = re.compile("da?nvda?n(pda?n)*")
VOWELS = "aeiou"


def pair(rng: np.random.Generator, operators: int) -> tuple[str, str] | None:
    """Counts and a sentence of one noun phrase before the verb and a number of them behind it."""
    kinds = _noun_phrase(rng) + "v" + "p".join(_noun_phrase(rng) for _ in range(operators))
    sentence = " ".join(str(rng.choice(WORDS[kind])) for kind in kinds)
    return count(sentence), sentence


def _noun_phrase(rng: np.random.Generator) -> str:
    return "dan" if rng.random() < 0.4 else "dn"


def count(sentence: str) -> str:
    """The number of words, and of each vowel."""
    letters = Counter(sentence)
    return " ".join([f"words {len(sentence.split())}", *(f"{vowel} {letters[vowel]}" for vowel in VOWELS)])


def solves(problem: str, answer: str) -> bool:
    """Whether an answer is a sentence with the counts of a problem."""
    kinds = "".join(CLASS.get(word, "?") for word in answer.split())
    return SENTENCE.fullmatch(kinds) is not None and count(answer) == problem
