"""Intrinsic evaluation of word vectors: word similarity and analogies. English, with the files of gensim.

The words must be in the vocabulary: each figure comes with the share of the test that is covered, and spaces
with different shares are not comparable.
"""

import math
from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import torch
from scipy.stats import norm, spearmanr

from components.embeddings.maps import unit
from components.embeddings.neighbours import blocks
from components.embeddings.space import Space

FILES = {"wordsim353": "wordsim353.tsv", "simlex999": "simlex999.txt", "analogies": "questions-words.txt"}
"""Finkelstein et al. 2002, Hill et al. 2015, Mikolov et al. 2013."""
EPSILON = 1e-3
"""In the divisor of 3CosMul (Levy and Goldberg 2014)."""


def evaluate(space: Space, tests: list[str]) -> dict[str, dict[str, float | int | None]]:
    """Name -> figures for each of the `tests`."""
    return {name: analogies(space) if name == "analogies" else similarity(space, name) for name in tests}


FEWEST_PAIRS = 10
"""Pairs that an interval needs. That of four has a true value of .8 in 72 % of cases, that of eight or more in 94 %."""


def similarity(space: Space, name: str) -> dict[str, float | int | None]:
    """Spearman's correlation of cosines with human judgements, and its 95 % interval; None with fewer than four pairs, the interval
    with fewer than FEWEST_PAIRS."""
    rows, vectors, cosines, people, pairs = _rows(space), unit(space.vectors), [], [], 0
    for line in _lines(name):
        first, second, judgement = line.split("\t")
        pairs += 1
        if first.lower() in rows and second.lower() in rows:
            cosines.append(float(vectors[rows[first.lower()]] @ vectors[rows[second.lower()]]))
            people.append(float(judgement))
    figures: dict[str, float | int | None] = {"spearman": None, "low": None, "high": None}
    if len(people) > 3 and (correlation := float(spearmanr(cosines, people).statistic)) == correlation:
        # Fisher's transformation with the variance of a rank correlation (Bonett and Wright 2000)
        margin = norm.ppf(0.975) * math.sqrt((1 + correlation**2 / 2) / (len(people) - 3))
        middle = math.atanh(min(max(correlation, -0.999999), 0.999999))
        figures["spearman"] = correlation
        if len(people) >= FEWEST_PAIRS:
            figures |= {"low": math.tanh(middle - margin), "high": math.tanh(middle + margin)}
    return figures | {"asked": len(people), "coverage": len(people) / pairs}


def analogies(space: Space) -> dict[str, float | int | None]:
    """Return the accuracy of "a is to b as c to d" by adding cosines and by multiplying them (Levy and Goldberg 2014, sections
    3 and 4); a, b and c are excluded as answers, in any case of their letters. None where no question is covered."""
    rows = _rows(space)
    covered, questions = [], 0
    for line in _lines("analogies"):
        if not line.startswith(":"):
            questions += 1
            words = line.lower().split()
            if all(word in rows for word in words):
                covered.append([rows[word] for word in words])
    figures: dict[str, float | int | None] = {"add": None, "multiply": None, "asked": len(covered), "coverage": len(covered) / questions}
    if not covered:
        return figures
    vectors, indices = torch.from_numpy(unit(space.vectors).astype(np.float32)), torch.tensor(covered)
    used, where = indices[:, :3].unique(return_inverse=True)  # the questions share few words, whose cosines are computed once
    cosines = torch.cat([scores.clone() for _, scores in blocks(vectors[used], vectors)])
    right = {"add": 0, "multiply": 0}
    forms = defaultdict(set)  # lower-cased word -> its rows: an answer counts in any case, as in word2vec's own program
    for row, word in enumerate(space.words):
        forms[word.lower()].add(row)
    for question, (a, b, c) in zip(indices, where, strict=True):
        shifted = {side: (cosines[row] + 1) / 2 for side, row in (("a", a), ("b", b), ("c", c))}
        scores = {"add": cosines[b] - cosines[a] + cosines[c], "multiply": shifted["b"] * shifted["c"] / (shifted["a"] + EPSILON)}
        asked, answers = question[:3].tolist(), forms[space.words[question[3]].lower()]
        others = set().union(*(forms[space.words[row].lower()] for row in asked)) - answers
        excluded = [*asked, *others]
        for method, values in scores.items():
            values[excluded] = -torch.inf
            right[method] += int(values.argmax()) in answers
    return figures | {method: count / len(covered) for method, count in right.items()}


def _rows(space: Space) -> dict[str, int]:
    """Lower-cased word -> row; of words that differ in case the more frequent one."""
    return {word.lower(): row for row, word in reversed(list(enumerate(space.words)))}


def _lines(name: str) -> Iterator[str]:
    from gensim.test.utils import datapath

    with open(datapath(FILES[name]), encoding="utf-8") as file:
        yield from (line.rstrip("\n") for line in file if line.strip() and not line.startswith("#"))
