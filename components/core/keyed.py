"""Random numbers that are a pure function of a key: the same whatever the number of workers, ranks or restarts."""

import numpy as np


def uniform(*key: int | np.ndarray) -> np.ndarray:
    """Numbers in [0, 1), float64, one for each element of the broadcast key (seed, epoch, example, position, ...).

    SplitMix64 (Steele et al. 2014) chained over the parts of the key.
    """
    with np.errstate(over="ignore"):
        state = np.uint64(0)
        for part in key:
            state = (state + np.asarray(part).astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
            state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            state = state ^ (state >> np.uint64(31))
    return (state >> np.uint64(11)) * 2.0**-53


def generator(*key: int) -> np.random.Generator:
    """For what is drawn one number after another, as a permutation. The length of the key goes first: numpy fills short keys up with
    zeros, so that (seed, epoch) and (seed, epoch, 0) would draw the same, and shards stand in the order of the first one's documents."""
    return np.random.default_rng([len(key), *key])
