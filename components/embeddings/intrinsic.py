"""What word vectors say by themselves: similarity as people judge it, and analogies. English, from the files that come with gensim.

The words must be in the vocabulary: the share of a test that they cover is next to its figure, and spaces
with other shares don't compare.
"""

import math
from collections.abc import Iterator

import numpy as np
import torch
from scipy.stats import norm, spearmanr

from components.embeddings.maps import unit
from components.embeddings.neighbours import blocks
from components.embeddings.space import Space

FILES = {"wordsim353": "wordsim353.tsv", "simlex999": "simlex999.txt", "analogies": "questions-words.txt"}
"""Finkelstein et al. 2002, Hill et al. 2015, Mikolov et al. 2013."""
LEAST = 1e-3
"""Added to the divisor of 3CosMul, as in Levy and Goldberg (2014)."""


def judged(space: Space, tests: list[str]) -> dict[str, dict[str, float | int | None]]:
    """Each of the `tests` by its name."""
    return {name: analogies(space) if name == "analogies" else similarity(space, name) for name in tests}


def similarity(space: Space, name: str) -> dict[str, float | int | None]:
    """Spearman's correlation of cosines with people's judgements, its 95 % interval, and what was asked; None of fewer than four pairs."""
    rows, vectors, cosines, people, pairs = _rows(space), unit(space.vectors), [], [], 0
    for line in _lines(name):
        first, second, judgement = line.split("\t")
        pairs += 1
        if first.lower() in rows and second.lower() in rows:
            cosines.append(float(vectors[rows[first.lower()]] @ vectors[rows[second.lower()]]))
            people.append(float(judgement))
    figures: dict[str, float | int | None] = {"spearman": None, "low": None, "high": None}
    if len(people) > 3 and (found := float(spearmanr(cosines, people).statistic)) == found:
        # Fisher's transformation with the variance of a rank correlation (Bonett and Wright 2000)
        reach = norm.ppf(0.975) * math.sqrt((1 + found**2 / 2) / (len(people) - 3))
        middle = math.atanh(min(max(found, -0.999999), 0.999999))
        figures = {"spearman": found, "low": math.tanh(middle - reach), "high": math.tanh(middle + reach)}
    return figures | {"asked": len(people), "coverage": len(people) / pairs}


def analogies(space: Space) -> dict[str, float | int | None]:
    """Of "a is to b as c to d" the share in which d is found, by adding cosines and by multiplying them (Levy and Goldberg 2014,
    sections 3 and 4); a, b and c are no answers. None where no question can be asked."""
    rows = _rows(space)
    asked, questions = [], 0
    for line in _lines("analogies"):
        if not line.startswith(":"):
            questions += 1
            words = line.lower().split()
            if all(word in rows for word in words):
                asked.append([rows[word] for word in words])
    figures: dict[str, float | int | None] = {"add": None, "multiply": None, "asked": len(asked), "coverage": len(asked) / questions}
    if not asked:
        return figures
    vectors, places = torch.from_numpy(unit(space.vectors).astype(np.float32)), torch.tensor(asked)
    used, where = places[:, :3].unique(return_inverse=True)  # few words make up all questions: their cosines are taken once
    cosines = torch.cat([scores.clone() for _, scores in blocks(vectors[used], vectors)])
    right = {"add": 0, "multiply": 0}
    for question, (a, b, c) in zip(places, where, strict=True):
        shifted = {side: (cosines[row] + 1) / 2 for side, row in (("a", a), ("b", b), ("c", c))}
        scores = {"add": cosines[b] - cosines[a] + cosines[c], "multiply": shifted["b"] * shifted["c"] / (shifted["a"] + LEAST)}
        for way, found in scores.items():
            found[question[:3]] = -torch.inf
            right[way] += int(found.argmax() == question[3])
    return figures | {way: count / len(asked) for way, count in right.items()}


def _rows(space: Space) -> dict[str, int]:
    """Lower-cased word -> row, of words that differ in case the more frequent one."""
    return {word.lower(): row for row, word in reversed(list(enumerate(space.words)))}


def _lines(name: str) -> Iterator[str]:
    from gensim.test.utils import datapath

    with open(datapath(FILES[name]), encoding="utf-8") as file:
        yield from (line.rstrip("\n") for line in file if line.strip() and not line.startswith("#"))
