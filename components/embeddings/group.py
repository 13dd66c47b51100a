"""Stage `group`: `python -m components.embeddings.group NAME` finds words that two sets of writers use differently:
data/align/NAME/used.csv.

The neighbours of every word differ between any two texts. So this is a permutation test: the documents of both sets are mixed and
divided at random many times, and a word is used differently if its two vectors are farther apart than in these random divisions.
Habits of a single writer with many documents cannot be told apart from those of a set: a document should have all
of a writer's text.
"""

import time
from collections import Counter
from dataclasses import dataclass
from math import comb
from pathlib import Path

import numpy as np
from scipy import sparse
from threadpoolctl import threadpool_limits

from components import params
from components.comparison.detection import LEVEL
from components.comparison.verdicts import false_discovery_rates
from components.core import compute, storage
from components.core.errors import SesameError
from components.embeddings import evaluate
from components.embeddings.evaluate import beyond_frequency
from components.embeddings.space import WORD, say_unspaced
from components.embeddings.trainers.ppmi_svd import cooccurrences, ppmi
from components.stages import stage
from components.text import corpora

PRINT_EVERY = 20.0
"""Seconds."""
NEIGHBOURS_OF = 100
"""Number of words, those that differ most, with neighbours in the table."""
OWN = 0.5
"""The weight of a word's variance over the permutations in the variance of its score."""
MIN_DEVIATION = 1e-6
"""Of a distance."""


@dataclass(frozen=True)
class Documents:
    """The documents of both sets, those of the first set first."""

    sizes: tuple[int, int]
    """Documents in each set."""
    words: list[str]
    """Most frequent first; they are also the contexts."""
    counts: np.ndarray
    """Occurrences, (documents, words)."""
    cooccurrences: sparse.csr_matrix
    """Weighted co-occurrences, (documents, pairs of words)."""
    pairs: tuple[np.ndarray, np.ndarray]
    """The word and the context of each pair, (pairs,)."""


def compare_groups(all_params: params.Params, name: str, run) -> dict:
    """Count, permute, compare and write. Raises SesameError where there are too few documents, or the sets have no word in common."""
    groups = all_params.groups[name]
    compute.prepare(1)
    with threadpool_limits(limits=1):
        documents = read(groups)
        return _compare(groups, documents, Path("data/align", name))


def read(groups: params.Groups) -> Documents:
    """Read and count both texts. Raises SesameError where their documents have fewer divisions than permutations are wanted."""
    sets = [_documents(name, groups.max_words) for name in (groups.first, groups.second)]
    sizes = [len(documents) for documents in sets]
    if not all(sizes) and groups.max_words is not None:
        raise SesameError(f"max_words {groups.max_words:,} leaves {sizes[0]} and {sizes[1]} documents of the two texts; raise it")
    if (ways := comb(sum(sizes), sizes[0]) - 1) < groups.permutations:
        raise SesameError(
            f"{groups.first} has {sizes[0]} documents in its training text and {groups.second} {sizes[1]}: there are {ways} other ways to "
            f"divide them, fewer than the {groups.permutations} permutations"
        )
    together = [document for documents in sets for document in documents]
    counted = [Counter(word for sentence in document for word in sentence) for document in together]
    all_words = sum(counted, Counter())
    say_unspaced(all_words)
    words = [word for word, _ in all_words.most_common(groups.max_vocabulary)]
    row = {word: i for i, word in enumerate(words)}
    counts = np.zeros((len(together), len(words)), dtype=np.int64)
    for i, counter in enumerate(counted):
        for word in counter.keys() & row.keys():
            counts[i, row[word]] = counter[word]

    # counts are additive: with one row per document, a permutation is a sum of rows, and no text is read twice
    matrices = [cooccurrences(document, row, groups.window) for document in together]
    keys = [matrix.row.astype(np.int64) * len(words) + matrix.col for matrix in matrices]
    known = np.unique(np.concatenate(keys))
    columns = np.concatenate([np.searchsorted(known, document_keys) for document_keys in keys])
    ends = np.concatenate([[0], np.cumsum([len(document_keys) for document_keys in keys])])
    values = np.concatenate([matrix.data for matrix in matrices])
    matrix = sparse.csr_matrix((values, columns, ends), shape=(len(together), len(known)))
    return Documents((len(sets[0]), len(sets[1])), words, counts, matrix, (known // len(words), known % len(words)))


def _documents(corpus: str, max_words: int | None) -> list[list[list[str]]]:
    """Lower-cased words of the sentences of each document. Whole documents with at most `max_words` in total are drawn with a
    fixed seed: the first ones may have something in common that has nothing to do with the set."""
    read = corpora.read(Path("data/corpora", corpus), "train")
    documents = [[WORD.findall(segment.lower()) for segment in document] for document in read]
    if max_words is None:
        return documents
    sizes = np.array([sum(map(len, document)) for document in documents])
    order = np.random.default_rng(0).permutation(len(documents))
    return [documents[i] for i in sorted(order[np.cumsum(sizes[order]) <= max_words])]


def space(documents: Documents, chosen: np.ndarray, groups: params.Groups) -> sparse.csr_matrix:
    """Unit rows of positive pointwise mutual information in the `chosen` (documents,), (words, contexts)."""
    sums = documents.cooccurrences.T @ chosen.astype(np.float32)
    present = np.flatnonzero(sums)
    size = len(documents.words)
    pairs = sparse.coo_matrix((sums[present], tuple(indices[present] for indices in documents.pairs)), shape=(size, size))
    matrix = ppmi(pairs, groups.context_smoothing)
    lengths = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel())
    return sparse.diags(1 / np.maximum(lengths, 1e-12)) @ matrix


def distances(documents: Documents, first: np.ndarray, groups: params.Groups, tested: np.ndarray) -> np.ndarray:
    """How far each tested word is from itself between the two sets, minus the distance of words of similar frequency, (tested words,).

    `tested` (words,) selects words. The noise of a word's two vectors depends on its frequency in the set where it is rarer. In a random
    division it is about as frequent in both sets, but not between two sets of writers: so the effect of that frequency is subtracted.
    """
    x, z = (space(documents, chosen, groups) for chosen in (first, ~first))
    distance = 1 - np.asarray(x.multiply(z).sum(axis=1)).ravel()[tested]
    rarer = np.minimum(documents.counts[first].sum(axis=0), documents.counts[~first].sum(axis=0))[tested]
    return beyond_frequency(distance, rarer)


def _compare(groups: params.Groups, documents: Documents, path: Path) -> dict:
    size, rng = sum(documents.sizes), np.random.default_rng(groups.seed)
    first = np.arange(size) < documents.sizes[0]
    counts = [documents.counts[chosen].sum(axis=0) for chosen in (first, ~first)]
    tested = np.minimum(*counts) >= groups.min_count
    if not tested.any():
        raise SesameError(f"no word occurs {groups.min_count} times in both {groups.first} and {groups.second}: lower min_count")
    observed = distances(documents, first, groups, tested)
    permuted, printed = [], time.monotonic()
    for number in range(groups.permutations):
        permuted.append(distances(documents, rng.permutation(first), groups, tested))
        if time.monotonic() - printed > PRINT_EVERY:
            printed = time.monotonic()
            print(f"{number + 1} of {groups.permutations} permutations", flush=True)

    score, null = scores(np.stack([observed, *permuted]), np.minimum(*counts)[tested])
    family = (1 + (null.max(axis=1)[:, None] >= score).sum(axis=0)) / (1 + len(null))
    falsely = false_discovery_rates(score, null.ravel())
    words = [documents.words[i] for i in np.flatnonzero(tested)]
    used = [
        {
            "word": words[i], "apart": float(observed[i]), "score": float(score[i]), "p_family": float(family[i]),
            "falsely": float(falsely[i]), "first_count": int(counts[0][tested][i]), "second_count": int(counts[1][tested][i]),
            "first_neighbours": "", "second_neighbours": "",
        }
        for i in np.argsort(-score, kind="stable")
    ]  # fmt: skip
    row = {word: i for i, word in enumerate(documents.words)}
    rows = [row[line["word"]] for line in used[:NEIGHBOURS_OF]]
    for side, chosen in (("first", first), ("second", ~first)):
        for line, near in zip(used, _nearest(space(documents, chosen, groups), rows, documents.words), strict=False):
            line[f"{side}_neighbours"] = near
    with storage.output(path) as folder:
        folder.mkdir()
        evaluate.write_csv(folder / "used.csv", used)
    discovered = int((falsely <= LEVEL).sum())
    print(f"{discovered} of {len(words)} words are used differently, at a false discovery rate of {LEVEL:.0%}", flush=True)
    return {
        "documents": list(documents.sizes), "words": len(words), "used_differently": discovered,
        "beyond_family": int((family <= LEVEL).sum()),
    }  # fmt: skip


def scores(distances: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scores of the true division (n,) and of the permutations (permutations, n) that are comparable between words.

    `distances` (1 + permutations, n) has the true ones first; each division is compared with the others. A word's mean over them is
    subtracted (an ambiguous word is far from itself in any two texts). The unit is a moderated deviation, as for genes (Smyth
    2004, section 3): the variance has OWN parts of the word's variance, which is large for words that few writers use a lot, and the
    rest is that of words of similar frequency, since the word's variance is also large where the writers do differ.
    """
    others = len(distances) - 1
    mean = (distances.sum(axis=0) - distances) / others
    variance = ((distances**2).sum(axis=0) - distances**2) / others - mean**2
    x, y = np.log(np.maximum(counts, 1)), np.log(np.maximum(distances.std(axis=0), MIN_DEVIATION))
    usual = np.exp(np.polynomial.Polynomial.fit(x, y, min(2, len(np.unique(x)) - 1))(x))
    scored = (distances - mean) / np.sqrt(OWN * np.maximum(variance, MIN_DEVIATION**2) + (1 - OWN) * usual**2)
    return scored[0], scored[1:]


def _nearest(rows: sparse.csr_matrix, queries: list[int], words: list[str], k: int = 5) -> list[str]:
    """The words of the k nearest rows of each query row, without itself, separated by blanks."""
    cosines = (rows[queries] @ rows.T).toarray()
    cosines[np.arange(len(queries)), queries] = -1
    return [" ".join(words[i] for i in np.argsort(-similar, kind="stable")[:k]) for similar in cosines]


if __name__ == "__main__":
    stage.main("group", compare_groups)
