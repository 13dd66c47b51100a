"""Stage `group`: `python -m components.embeddings.group NAME` finds words that two sets of writers use differently:
data/align/NAME/used.csv.

Two texts differ in every word's neighbours, if only because they are two. So the documents of both are put together and
dealt out again, many times: a word is used differently where its two vectors are farther apart than such deals of
chance put them. What can't be told from documents, such as the habits of one writer with many, can't be told here: a
document should be all of one writer.
"""

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import comb
from pathlib import Path

import numpy as np
from scipy import sparse
from threadpoolctl import threadpool_limits

from components import params
from components.comparison.verdicts import LEVEL, false_discovery_rates
from components.core import compute, storage
from components.core.errors import SesameError
from components.embeddings import evaluate
from components.embeddings.evaluate import beyond_frequency
from components.embeddings.space import WORD
from components.embeddings.trainers.ppmi_svd import met, positive
from components.stages import stage
from components.text import corpora

SAID_EVERY = 20.0
"""Seconds."""
NEIGHBOURS_OF = 100
"""Words, those that differ most."""
OWN = 0.5
"""Of the variance that a word's distance is measured in, how much is the word's own over the deals."""
SMALLEST = 1e-6
"""Deviation of a distance."""


@dataclass(frozen=True)
class Documents:
    """The documents of both sets, those of the first before those of the second."""

    sizes: tuple[int, int]
    """Documents of either."""
    words: list[str]
    """Most frequent first; contexts are these."""
    counts: np.ndarray
    """(documents, words) occurrences."""
    met: sparse.csr_matrix
    """(documents, pairs of words) how often a pair met in each document."""
    pairs: tuple[np.ndarray, np.ndarray]
    """(pairs,) the word and the context of each."""


def body(all_params: params.Params, name: str, run) -> dict:
    """Count, deal, compare, write. Raises SesameError where there are too few documents to permute, or no word is in both sets."""
    groups = all_params.groups[name]
    compute.prepare(1)
    with threadpool_limits(limits=1):
        documents = read(groups)
        return _compared(groups, documents, Path("data/align", name))


def read(groups: params.Groups) -> Documents:
    """Both texts, counted. Raises SesameError where there are fewer ways to deal their documents than permutations."""
    sets = [list(_documents(name, groups.max_words)) for name in (groups.first, groups.second)]
    sizes = [len(own) for own in sets]
    if (ways := comb(sum(sizes), sizes[0]) - 1) < groups.permutations:
        raise SesameError(
            f"{groups.first} has {sizes[0]} documents in its training text and {groups.second} {sizes[1]}: there are {ways} other ways to "
            f"deal them, fewer than the {groups.permutations} permutations"
        )
    together = [document for own in sets for document in own]
    counted = [Counter(word for sentence in document for word in sentence) for document in together]
    words = [word for word, _ in sum(counted, Counter()).most_common(groups.max_vocabulary)]
    row = {word: i for i, word in enumerate(words)}
    counts = np.zeros((len(together), len(words)), dtype=np.int64)
    for i, own in enumerate(counted):
        for word in own.keys() & row.keys():
            counts[i, row[word]] = own[word]

    # Counts add up over documents: with a row for each, a deal is a sum of rows, and no text is read twice.
    met_in = [met(document, row, groups.window) for document in together]
    keys = [own.row.astype(np.int64) * len(words) + own.col for own in met_in]
    known = np.unique(np.concatenate(keys))
    places = np.concatenate([np.searchsorted(known, own) for own in keys])
    ends = np.concatenate([[0], np.cumsum([len(own) for own in keys])])
    values = np.concatenate([own.data for own in met_in])
    matrix = sparse.csr_matrix((values, places, ends), shape=(len(together), len(known)))
    return Documents((len(sets[0]), len(sets[1])), words, counts, matrix, (known // len(words), known % len(words)))


def _documents(corpus: str, max_words: int | None) -> Iterator[list[list[str]]]:
    """Lower-cased words of the sentences of each document, up to `max_words` in all."""
    left = np.inf if max_words is None else max_words
    for document in corpora.read(Path("data/corpora", corpus), "train"):
        sentences = [WORD.findall(segment.lower()) for segment in document]
        left -= sum(map(len, sentences))
        if left < 0:
            return
        yield sentences


def space(documents: Documents, own: np.ndarray, groups: params.Groups) -> sparse.csr_matrix:
    """(words, contexts) unit rows of positive pointwise mutual information in the documents that `own` (documents,) picks."""
    sums = documents.met.T @ own.astype(np.float32)
    there = np.flatnonzero(sums)
    size = len(documents.words)
    pairs = sparse.coo_matrix((sums[there], tuple(part[there] for part in documents.pairs)), shape=(size, size))
    matrix = positive(pairs, groups.context_smoothing)
    lengths = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel())
    return sparse.diags(1 / np.maximum(lengths, 1e-12)) @ matrix


def apart(documents: Documents, first: np.ndarray, groups: params.Groups, asked: np.ndarray) -> np.ndarray:
    """(words asked,) how far each is from itself between the two sets, beyond what words as rare are.

    `asked` (words,) says of which. What a word's two vectors have of noise goes with how often it is there where it is rarer, and a
    deal of chance has it in both sets alike, which two sets of writers may not: so what goes with that frequency is taken off.
    """
    x, z = (space(documents, own, groups) for own in (first, ~first))
    distance = 1 - np.asarray(x.multiply(z).sum(axis=1)).ravel()[asked]
    rarer = np.minimum(documents.counts[first].sum(axis=0), documents.counts[~first].sum(axis=0))[asked]
    return beyond_frequency(distance, rarer)


def _compared(groups: params.Groups, documents: Documents, path: Path) -> dict:
    size, draw = sum(documents.sizes), np.random.default_rng(groups.seed)
    first = np.arange(size) < documents.sizes[0]
    counts = [documents.counts[own].sum(axis=0) for own in (first, ~first)]
    asked = np.minimum(*counts) >= groups.min_count
    if not asked.any():
        raise SesameError(f"no word occurs {groups.min_count} times in both {groups.first} and {groups.second}: lower min_count")
    observed = apart(documents, first, groups, asked)
    dealt, said = [], time.monotonic()
    for number in range(groups.permutations):
        dealt.append(apart(documents, draw.permutation(first), groups, asked))
        if time.monotonic() - said > SAID_EVERY:
            said = time.monotonic()
            print(f"{number + 1} of {groups.permutations} permutations", flush=True)

    own, chance = scores(np.stack([observed, *dealt]), np.minimum(*counts)[asked])
    family = (1 + (chance.max(axis=1)[:, None] >= own).sum(axis=0)) / (1 + len(chance))
    falsely = false_discovery_rates(own, chance.ravel())
    words = [documents.words[i] for i in np.flatnonzero(asked)]
    used = [
        {
            "word": words[i], "apart": float(observed[i]), "score": float(own[i]), "p_family": float(family[i]),
            "falsely": float(falsely[i]), "first_count": int(counts[0][asked][i]), "second_count": int(counts[1][asked][i]),
            "first_neighbours": "", "second_neighbours": "",
        }
        for i in np.argsort(-own, kind="stable")
    ]  # fmt: skip
    row = {word: i for i, word in enumerate(documents.words)}
    rows = [row[line["word"]] for line in used[:NEIGHBOURS_OF]]
    for side, own in (("first", first), ("second", ~first)):
        for line, near in zip(used, _nearest(space(documents, own, groups), rows, documents.words), strict=False):
            line[f"{side}_neighbours"] = near
    with storage.output(path) as folder:
        folder.mkdir()
        evaluate.write_csv(folder / "used.csv", used)
    discovered = int((falsely <= LEVEL).sum())
    print(f"{discovered} of {len(words)} words are used differently (falsely in {LEVEL:.0%} of them at most)", flush=True)
    return {
        "documents": list(documents.sizes), "words": len(words), "used_differently": discovered,
        "beyond_family": int((family <= LEVEL).sum()),
    }  # fmt: skip


def scores(deals: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(n,) of the true sets and (deals, n) of the others: how far each word is from itself, as scores that compare from word to word.

    `deals` (1 + deals, n) has the distances, the true one first; each is compared with the others. A word's own mean
    over them is taken off (one of many senses is far from itself in any two texts). The unit is a moderated deviation,
    as of genes (Smyth 2004, section 3): the variance is in OWN parts the word's own, which is large for words that few
    writers use a lot, and else that of words as frequent, since the own is large, too, just where the writers do
    differ.
    """
    others = len(deals) - 1
    mean = (deals.sum(axis=0) - deals) / others
    variance = ((deals**2).sum(axis=0) - deals**2) / others - mean**2
    x, own = np.log(np.maximum(counts, 1)), np.log(np.maximum(deals.std(axis=0), SMALLEST))
    usual = np.exp(np.polynomial.Polynomial.fit(x, own, min(2, len(np.unique(x)) - 1))(x))
    scored = (deals - mean) / np.sqrt(OWN * np.maximum(variance, SMALLEST**2) + (1 - OWN) * usual**2)
    return scored[0], scored[1:]


def _nearest(rows: sparse.csr_matrix, asked: list[int], words: list[str], k: int = 5) -> list[str]:
    """Of each of the rows `asked` the words of the k nearest rows, but itself, with blanks between."""
    cosines = (rows[asked] @ rows.T).toarray()
    cosines[np.arange(len(asked)), asked] = -1
    return [" ".join(words[i] for i in np.argsort(-own, kind="stable")[:k]) for own in cosines]


if __name__ == "__main__":
    stage.main("group", body)
