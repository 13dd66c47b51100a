"""Factors of the positive pointwise mutual information of words and contexts (Levy, Goldberg and Dagan 2015, section 2.2)."""

from collections import Counter

import numpy as np

from components import params
from components.spaces.trainers import vocabulary


def train(sentences: list[list[str]], settings: params.PpmiSvd) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Words, counts, vectors: U Sᵖ of the truncated SVD of max(0, PMI) with smoothed contexts."""
    from scipy import sparse
    from scipy.sparse.linalg import svds
    from threadpoolctl import threadpool_limits

    counts = Counter(word for sentence in sentences for word in sentence)
    words = [word for word, count in counts.most_common(settings.max_vocabulary) if count >= settings.min_count]
    vocabulary.check(len(words), settings.vector_size + 1, settings)  # svds gives fewer factors than the matrix has rows
    row = {word: i for i, word in enumerate(words)}
    kept = [[row[word] for word in sentence if word in row] for sentence in sentences]
    ids = np.fromiter((i for sentence in kept for i in sentence), dtype=np.int32)
    sentence_of = np.repeat(np.arange(len(kept), dtype=np.int32), [len(sentence) for sentence in kept])

    # How often each word stands at each distance before another of its sentence, the nearer the heavier; by symmetry after it, too.
    pairs = sparse.csr_matrix((len(words), len(words)), dtype=np.float32)
    for distance in range(1, settings.window + 1):
        same = sentence_of[:-distance] == sentence_of[distance:]
        ones = np.full(int(same.sum()), (settings.window + 1 - distance) / settings.window, dtype=np.float32)
        pairs = pairs + sparse.csr_matrix((ones, (ids[:-distance][same], ids[distance:][same])), shape=pairs.shape)
    pairs = (pairs + pairs.T).tocoo()

    # log of P(word, context) / P(word) P(context), where it is positive: what never met stays 0, and the matrix sparse.
    total = np.asarray(pairs.sum(axis=1), dtype=np.float64).ravel()
    context = total**settings.context_smoothing
    pairs.data = np.maximum(0, np.log(pairs.data * context.sum() / (total[pairs.row] * context[pairs.col])))
    pairs.eliminate_zeros()

    start = np.random.default_rng(0).standard_normal(len(words))  # of the iteration; the factors don't depend on it
    with threadpool_limits(1):  # more threads are slower on vectors this short, and sums would depend on their number
        u, s, _ = svds(pairs.tocsr(), k=settings.vector_size, v0=start)
    vectors = u[:, ::-1] * s[::-1] ** settings.eigenvalue_weight  # svds gives the smallest value first
    return words, np.array([counts[word] for word in words]), vectors.astype(np.float32)
