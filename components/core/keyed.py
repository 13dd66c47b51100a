"""Random numbers that are a pure function of a key: the same whatever the number of workers, ranks or restarts."""

import numpy as np


def uniform(*key: int | np.ndarray) -> np.ndarray:
    """Return numbers in [0, 1), float64, one for each element of the broadcast key (seed, epoch, example, position, ...).

    SplitMix64 (Steele et al. 2014) chained over the components of the key.
    """
    with np.errstate(over="ignore"):
        state = np.uint64(0)
        for component in key:
            state = (state + np.asarray(component).astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
            state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            state = state ^ (state >> np.uint64(31))
    return (state >> np.uint64(11)) * 2.0**-53


def generator(*key: int) -> np.random.Generator:
    """Return a generator for sequential draws, e.g. a permutation.

    The length of the key comes first: numpy pads short keys with zeros, so that (seed, epoch) and (seed, epoch, 0) would be the same,
    and the order of the shards would equal that of the documents in the first shard.
    """
    return np.random.default_rng([len(key), *key])
