"""MinHash of documents (Broder 1997): 128 numbers each; two documents share about the same fraction of them as of their 5-word shingles.

datatrove's own signature makes a Python call for each shingle, takes longer than all the rest (docs/text.md), needs word tokenizers that
are downloaded, and maps all numbers to one. This one is computed by numpy for a document at a time; shingles, threshold and shortest
document are those of the corpora in memory (components/text/corpora/cleaning.py).
"""

from functools import lru_cache
from pathlib import Path

import numpy as np

from components.core.words import characters_apart
from components.text.corpora.cleaning import PERMUTATIONS, SHINGLE

GROUP = 1 << 16
"""Documents whose signatures are stored together, band by band, so that a band of a shard is read without the others."""
PIECE = 1 << 15
"""Bytes of a text that are hashed at once, up to the end of a word."""
_DRAW = np.random.RandomState(1)  # gives the same numbers in every version of numpy
_WORD = np.array([1 + 2 * int(number) for number in _DRAW.randint(0, 2**62, SHINGLE)], np.uint64)
_TIMES = np.array([1 + 2 * int(number) for number in _DRAW.randint(0, 2**31, PERMUTATIONS)], np.uint32)[:, None]
_PLUS = _DRAW.randint(0, 2**32, (PERMUTATIONS, 1), dtype=np.uint32)
_COLUMN = np.array([1 + 2 * int(number) for number in _DRAW.randint(0, 2**62, PERMUTATIONS)], np.uint64)
AT_ONCE = 512
"""Shingles whose values under all permutations fit into the fastest caches."""
_BASE = 0x9E3779B97F4A7C15  # any odd number; this one is splitmix64's


def mixed(numbers: np.ndarray) -> np.ndarray:
    """64-bit numbers of which every bit depends on all bits of the input (splitmix64, Steele et al. 2014)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


def word_hashes(raw: bytes) -> np.ndarray:
    """(words,): a polynomial hash of each word of a text, whose words are separated by one space or line end."""
    hashes, begin = [], 0
    while begin < len(raw):
        end = begin + PIECE
        if end < len(raw):
            end = min(at for at in (raw.find(b" ", end), raw.find(b"\n", end), len(raw)) if at >= 0)
        octets = np.frombuffer(raw, np.uint8, min(end, len(raw)) - begin, begin)
        powers, inverses = _powers(len(octets))
        sums = np.zeros(len(octets) + 1, np.uint64)
        np.cumsum(octets * powers[: len(octets)], out=sums[1:])
        gaps = np.flatnonzero((octets == 32) | (octets == 10))
        firsts = np.concatenate([[0], gaps + 1])
        hashes.append((sums[np.append(gaps, len(octets))] - sums[firsts]) * inverses[firsts])
        begin = end + 1
    return np.concatenate(hashes)


@lru_cache(maxsize=1)
def _all_powers(length: int) -> tuple[np.ndarray, np.ndarray]:
    factors = np.array([[_BASE], [pow(_BASE, -1, 2**64)]], np.uint64).repeat(length, 1)
    factors[:, 0] = 1
    return tuple(np.cumprod(factors, 1))


def _powers(length: int) -> tuple[np.ndarray, np.ndarray]:
    """Powers of `_BASE` and of its inverse, at least `length` of each."""
    return _all_powers(max(2 * PIECE, 1 << length.bit_length()))


def compared(raw: bytes) -> bytes:
    """A normalised document's words as they are compared, one separator between two: without case, and in scripts without blanks between
    words a character is a word."""
    return raw.lower() if raw.isascii() else " ".join(characters_apart(raw.decode().casefold()).split()).encode()


def signature(words: bytes) -> np.ndarray:
    """(128,) 16 bit: the lower halves of the smallest hashes of the shingles of `compared` words, by 128 hash functions.

    Two different halves are equal by chance in one of 65,536 cases.
    """
    hashes = mixed(word_hashes(words))
    shingles = max(1, len(hashes) - SHINGLE + 1)
    whole = np.zeros(shingles, np.uint64)
    for offset, factor in enumerate(_WORD[: len(hashes)]):
        whole += hashes[offset : offset + shingles] * factor
    short = (mixed(whole) >> np.uint64(32)).astype(np.uint32)
    smallest = np.full(PERMUTATIONS, 2**32 - 1, np.uint32)
    buffer = np.empty((PERMUTATIONS, min(shingles, AT_ONCE)), np.uint32)
    for begin in range(0, shingles, AT_ONCE):
        some = short[begin : begin + AT_ONCE]
        values = np.bitwise_xor(some, _PLUS, out=buffer[:, : len(some)])
        values *= _TIMES
        np.minimum(smallest, values.min(1), out=smallest)
    return smallest.astype(np.uint16)


def band_keys(numbers: np.ndarray) -> np.ndarray:
    """(documents, rows) -> (documents,): a hash of all rows of a band."""
    return mixed((numbers * _COLUMN[: numbers.shape[1]]).sum(1, dtype=np.uint64))


class Signatures:
    """The file of a shard's signatures: groups of documents, each stored band by band."""

    def __init__(self, path: Path, rows: int):
        self.rows, self.bands = rows, PERMUTATIONS // rows
        self.flat = np.memmap(path, np.uint16, "r") if path.stat().st_size else np.empty(0, np.uint16)
        self.size = len(self.flat) // PERMUTATIONS

    @staticmethod
    def group(signatures: list[np.ndarray], rows: int) -> bytes:
        """The bytes of a group in the file."""
        return np.stack(signatures).reshape(len(signatures), -1, rows).transpose(1, 0, 2).tobytes()

    def _groups(self) -> list[np.ndarray]:
        """(bands, documents, rows) each."""
        begins = range(0, self.size, GROUP)
        groups = [self.flat[begin * PERMUTATIONS : min(begin + GROUP, self.size) * PERMUTATIONS] for begin in begins]
        return [group.reshape(self.bands, -1, self.rows) for group in groups]

    def band(self, number: int) -> np.ndarray:
        """(documents,): the keys of one band."""
        return np.concatenate([np.empty(0, np.uint64), *(band_keys(group[number]) for group in self._groups())])

    def of(self, documents: np.ndarray) -> np.ndarray:
        """(n, 128) of `documents`, ascending numbers among the documents that have a signature."""
        signatures = [np.empty((0, PERMUTATIONS), np.uint16)]
        for number, group in enumerate(self._groups()):
            in_group = documents[(documents >= number * GROUP) & (documents < (number + 1) * GROUP)] - number * GROUP
            if len(in_group):
                signatures.append(group[:, in_group].transpose(1, 0, 2).reshape(len(in_group), -1))
        return np.concatenate(signatures)
