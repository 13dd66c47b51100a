"""Self-learning: from few pairs to a dictionary of the full vocabulary, by alternating between translation and learning a map.

Artetxe et al. (2017): from numerals or 25 words. Artetxe et al. (2018b): without pairs, with CSLS, both directions, and random
translations at first. VecMap drops random pairs of words; here each round samples the words of the other side: each pair is as likely
to be dropped, and a round costs only the share that is kept.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from components import params
from components.embeddings.maps import procrustes
from components.embeddings.neighbours import both_ways, crowding, nearest

FIRST = 4000
"""Most frequent words of each side whose similarities are compared for a start without pairs (Artetxe et al. 2018b)."""


@dataclass(frozen=True)
class Learned:
    """The final dictionary of self-learning."""

    rows: np.ndarray
    """Rows of source and target, (pairs, 2)."""
    rounds: int
    objective: float
    """Mean cosine of these pairs."""


def learn(x: np.ndarray, z: np.ndarray, rows: np.ndarray, method: params.Method) -> Learned:
    """Induce a dictionary for two normalised spaces (n, d), (m, d) from seed pairs `rows` (pairs, 2), all within its vocabulary."""
    how, rng = method.self_learning, np.random.default_rng(method.seed)
    left, right = x[: how.vocabulary].astype(np.float32), z[: how.vocabulary].astype(np.float32)
    keep, best, stalled, objective = how.keep, -np.inf, 0, -np.inf
    fixed = torch.from_numpy(right)
    for number in range(1, how.max_rounds + 1):  # noqa: B007, the number of the last round is returned
        mapped = torch.from_numpy(left @ procrustes(left[rows[:, 0]], right[rows[:, 1]]))
        rows, objective = induce(mapped, fixed, keep, method, rng)
        if objective > best + how.threshold:
            best, stalled = objective, 0
        else:
            stalled += 1
        if stalled >= how.patience:
            if keep == 1:
                break
            keep = 2 * keep if keep <= 0.25 else 1.0  # sampling most words costs as much as using all
            best, stalled = -np.inf, 0  # with more words the objective is larger
    if keep < 1:  # the rounds ended while words were still sampled
        rows, objective = induce(mapped, fixed, 1.0, method, rng)
    return Learned(rows, number, objective)


def induce(x: Tensor, z: Tensor, keep: float, method: params.Method, rng: np.random.Generator) -> tuple[np.ndarray, float]:
    """Pairs (pairs, 2) that translate each other among x (n, d) and z (m, d), in one space, and their mean cosine.

    With `keep` below 1 the words of each side are compared with a sample of that share of the other's.
    """
    how, k = method.self_learning, method.csls_k
    if keep < 1:
        some_x, some_z = (np.sort(rng.choice(len(side), max(1, round(keep * len(side))), replace=False)) for side in (x, z))
        few = max(1, round(k * keep))  # neighbours in the sample that are as near as k of all
        price_x = price_z = None
        if how.retrieval == "csls":
            price_x = crowding(x[some_x], z[some_z], few) / 2
            price_z = crowding(z[some_z], x[some_x], few) / 2
        to_z, to_x = nearest(x, z[some_z], 1, price_z)[1][:, 0].numpy(), nearest(z, x[some_x], 1, price_x)[1][:, 0].numpy()
        forward, backward = some_z[to_z], some_x[to_x]
    else:
        price_x = price_z = None
        if how.retrieval == "csls":
            price_x, price_z = crowding(x, z, k) / 2, crowding(z, x, k) / 2
        forward, backward = (rows.numpy() for rows in both_ways(x, z, price_x, price_z))
    forward_pairs = np.stack([np.arange(len(x)), forward], axis=1)
    backward_pairs = np.stack([backward, np.arange(len(z))], axis=1)
    if how.direction == "forward":
        rows = forward_pairs
    elif how.direction == "union":
        rows = np.concatenate([forward_pairs, backward_pairs])
    else:
        mutual = forward_pairs[backward[forward] == np.arange(len(x))]
        rows = mutual if len(mutual) else forward_pairs
    return rows, float((x[rows[:, 0]] * z[rows[:, 1]]).sum(dim=1).mean())


def by_similarity(x: np.ndarray, z: np.ndarray, k: int) -> np.ndarray:
    """Seed pairs (pairs, 2) without a dictionary: words with similar sorted similarities to the words of their side.

    Artetxe et al. (2018b), section 3.2: the similarities of a word in its language hardly depend on the language. Square roots of the
    similarity matrices, paired with CSLS.
    """
    size = min(len(x), len(z), FIRST)
    signatures = []
    for side in (x, z):
        u, s, _ = np.linalg.svd(side[:size].astype(np.float32), full_matrices=False)
        likeness = np.sort(u * s @ u.T, axis=1)  # (size, size): X Xᵀ has u s² uᵀ
        likeness /= np.linalg.norm(likeness, axis=1, keepdims=True).clip(1e-12)
        likeness -= likeness.mean(axis=0)
        signatures.append(torch.from_numpy(likeness / np.linalg.norm(likeness, axis=1, keepdims=True).clip(1e-12)))
    left, right = signatures
    prices = crowding(left, right, k) / 2, crowding(right, left, k) / 2
    forward, backward = (rows.numpy() for rows in both_ways(left, right, *prices))
    rows = np.arange(size)
    return np.concatenate([np.stack([rows, forward], axis=1), np.stack([backward, rows], axis=1)])
