"""From few pairs to a dictionary of the whole vocabulary: translate with the map, learn the map from that, and again.

Artetxe et al. (2017): from numerals or 25 words. Artetxe et al. (2018b): from no pair at all, CSLS, both directions, and translations
drawn at first. Where VecMap draws which of all pairs of words may translate each other, here a sample of the words of the other side
is drawn for all words of a round: each pair is as likely to be left out, and a round costs the kept share of the work.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from components import params
from components.embeddings.maps import procrustes
from components.embeddings.neighbours import both_ways, crowding, crowding_both_ways, nearest

FIRST = 4000
"""Most frequent words of either side whose similarities are compared for a start without pairs (Artetxe et al. 2018b)."""


@dataclass(frozen=True)
class Learned:
    """The dictionary that self-learning ended with."""

    rows: np.ndarray
    """(pairs, 2) rows of source and target."""
    rounds: int
    objective: float
    """Mean cosine of these pairs."""


def learn(x: np.ndarray, z: np.ndarray, rows: np.ndarray, method: params.Method) -> Learned:
    """Induce a dictionary for two normalised spaces (n, d), (m, d) from first pairs `rows` (pairs, 2), all within its vocabulary."""
    how, draw = method.self_learning, np.random.default_rng(method.seed)
    left, right = x[: how.vocabulary].astype(np.float32), z[: how.vocabulary].astype(np.float32)
    keep, best, stalled, objective = how.keep, -np.inf, 0, -np.inf
    fixed = torch.from_numpy(right)
    for number in range(1, how.max_rounds + 1):  # noqa: B007, the number of the last round is a figure
        mapped = torch.from_numpy(left @ procrustes(left[rows[:, 0]], right[rows[:, 1]]))
        rows, objective = induce(mapped, fixed, keep, method, draw)
        if objective > best + how.threshold:
            best, stalled = objective, 0
        else:
            stalled += 1
        if stalled >= how.patience:
            if keep == 1:
                break
            keep = 2 * keep if keep <= 0.25 else 1.0  # to draw most of the words costs as much as to take them all
            best, stalled = -np.inf, 0  # more words to choose among have better best ones: compared again
    if keep < 1:  # the rounds were used up while words were still drawn
        rows, objective = induce(mapped, fixed, 1.0, method, draw)
    return Learned(rows, number, objective)


def induce(x: Tensor, z: Tensor, keep: float, method: params.Method, draw: np.random.Generator) -> tuple[np.ndarray, float]:
    """Pairs (pairs, 2) that translate each other among x (n, d) and z (m, d), in one space, and the mean of their cosines.

    With `keep` below 1 the words of each side choose among so large a sample of the other's.
    """
    how, k = method.self_learning, method.csls_k
    if keep < 1:
        some_x, some_z = (np.sort(draw.choice(len(side), max(1, round(keep * len(side))), replace=False)) for side in (x, z))
        few = max(1, round(k * keep))  # as many neighbours of the sample are as near as k of all
        price_x = price_z = None
        if how.retrieval == "csls":
            price_x = crowding(x[some_x], z[some_z], few) / 2
            price_z = crowding(z[some_z], x[some_x], few) / 2
        to_z, to_x = nearest(x, z[some_z], 1, price_z)[1][:, 0].numpy(), nearest(z, x[some_x], 1, price_x)[1][:, 0].numpy()
        forward, backward = some_z[to_z], some_x[to_x]
    else:
        price_x = price_z = None
        if how.retrieval == "csls":
            crowded_x, crowded_z = crowding_both_ways(x, z, k)
            price_x, price_z = crowded_x / 2, crowded_z / 2
        forward, backward = (rows.numpy() for rows in both_ways(x, z, price_x, price_z))
    ahead = np.stack([np.arange(len(x)), forward], axis=1)
    behind = np.stack([backward, np.arange(len(z))], axis=1)
    if how.direction == "forward":
        rows = ahead
    elif how.direction == "union":
        rows = np.concatenate([ahead, behind])
    else:
        mutual = ahead[backward[forward] == np.arange(len(x))]
        rows = mutual if len(mutual) else ahead
    return rows, float((x[rows[:, 0]] * z[rows[:, 1]]).sum(dim=1).mean())


def by_similarity(x: np.ndarray, z: np.ndarray, k: int) -> np.ndarray:
    """First pairs (pairs, 2) without a dictionary: words whose sorted similarities to the words of their own side are alike.

    Artetxe et al. (2018b), section 3.2: what a word is like in its own language hardly depends on the language. Square roots of the
    similarity matrices, and CSLS to pair them.
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
    crowded_x, crowded_z = crowding_both_ways(left, right, k)
    forward, backward = (rows.numpy() for rows in both_ways(left, right, crowded_x / 2, crowded_z / 2))
    own = np.arange(size)
    return np.concatenate([np.stack([own, forward], axis=1), np.stack([backward, own], axis=1)])
