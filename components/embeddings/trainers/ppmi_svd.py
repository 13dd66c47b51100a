"""Factors of the positive pointwise mutual information of words and contexts (Levy, Goldberg and Dagan 2015, section 2.2)."""

from collections import Counter

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import svds
from threadpoolctl import threadpool_limits

from components import params
from components.embeddings.trainers import vocabulary


def train(sentences: list[list[str]], settings: params.PpmiSvd) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Words, counts, vectors: U Sᵖ of the truncated SVD of max(0, PMI) with smoothed contexts."""
    counts = Counter(word for sentence in sentences for word in sentence)
    words = [word for word, count in counts.most_common(settings.max_vocabulary) if count >= settings.min_count]
    vocabulary.check(len(words), settings.vector_size + 1, settings)  # svds gives fewer factors than the matrix has rows
    matrix = ppmi(cooccurrences(sentences, {word: i for i, word in enumerate(words)}, settings.window), settings.context_smoothing)
    vectors = factored(matrix, settings.vector_size, settings.eigenvalue_weight)
    # the row of a word whose co-occurrences are all at chance is zero; after centring, all such rows would be equal
    kept = vocabulary.report(np.flatnonzero(matrix.getnnz(axis=1)).tolist(), len(words))
    return [words[i] for i in kept], np.array([counts[words[i]] for i in kept]), vectors[kept]


def cooccurrences(sentences: list[list[str]], row: dict[str, int], window: int) -> sparse.coo_matrix:
    """Co-occurrences of words within a window in a sentence, weighted by their distance, (words, words)."""
    kept = [[row[word] for word in sentence if word in row] for sentence in sentences]
    ids = np.fromiter((i for sentence in kept for i in sentence), dtype=np.int32)
    sentence_of = np.repeat(np.arange(len(kept), dtype=np.int32), [len(sentence) for sentence in kept])
    pairs = sparse.csr_matrix((len(row), len(row)), dtype=np.float32)
    for distance in range(1, window + 1):
        same = sentence_of[:-distance] == sentence_of[distance:]
        ones = np.full(int(same.sum()), (window + 1 - distance) / window, dtype=np.float32)
        pairs = pairs + sparse.csr_matrix((ones, (ids[:-distance][same], ids[distance:][same])), shape=pairs.shape)
    return (pairs + pairs.T).tocoo()


def ppmi(pairs: sparse.coo_matrix, smoothing: float) -> sparse.csr_matrix:
    """log of P(word, context) / P(word) P(context), where positive; pairs without co-occurrences stay 0, and the matrix sparse."""
    total = np.asarray(pairs.sum(axis=1), dtype=np.float64).ravel()
    context = total**smoothing
    pairs.data = np.maximum(0, np.log(pairs.data * context.sum() / (total[pairs.row] * context[pairs.col])))
    pairs.eliminate_zeros()
    return pairs.tocsr()


def factored(matrix: sparse.csr_matrix, size: int, eigenvalue_weight: float) -> np.ndarray:
    """(words, size) float32: U Sᵖ of the truncated SVD."""
    start = np.random.default_rng(0).standard_normal(matrix.shape[0])  # the factors do not depend on it
    with threadpool_limits(1):  # faster on vectors this short, and the sums would depend on the number of threads
        u, s, _ = svds(matrix, k=size, v0=start)
    return (u[:, ::-1] * s[::-1] ** eigenvalue_weight).astype(np.float32)  # svds gives the smallest value first
