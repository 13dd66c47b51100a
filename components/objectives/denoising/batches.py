"""Sequences of running text, corrupted, and the targets to be generated from them."""

import numpy as np

from components.core.keyed import generator, uniform
from components.objectives.denoising.config import Denoising, Whole
from components.objectives.examples.batches import Chunk
from components.objectives.examples.rows import RowBatches
from components.objectives.examples.source_target import Side, source_target_chunk
from components.objectives.noise.tokens import random_subsets
from components.text.encode import Split
from components.text.tokenizer import MASK, SEP, SPECIALS, Tokenizer, sentinels

HIDDEN, SPLIT, KEPT_SPLIT, CUT, WHOLE = 1, 2, 3, 4, 5  # keys of random numbers

Masked = tuple[np.ndarray, np.ndarray]
"""Tokens (sequences, width), and which of them belong to the sequence, of the same shape."""


class DenoisingBatches(RowBatches):
    """Rows with as many tokens as source and target of the model can hold.

    All are equally long if the noise removes as many tokens from each: the last one of the text overlaps the one before it.
    """

    def __init__(self, config: Denoising, tokens: Tokenizer, text: Split, batch_size: int, max_length: int, seed: int):
        self.noise, self.max_length = config.noise, max_length
        if self.noise.kind == "spans":
            length = self.noise.sizes(max_length).text
        else:
            length = max_length if self.noise.kind == "prefix" else max_length - 1
        rows = -(-text.num_tokens // length) if text.num_tokens >= length else 0
        super().__init__(text, batch_size, length, length, rows, seed)
        self.ordinary = sentinels.ordinary(tokens)
        self.sentinels = np.array(sentinels.ids(tokens.vocab_size, config.sentinels(max_length)), dtype=np.int64)
        self.byte_lengths = np.array(tokens.byte_lengths)
        self.byte_lengths[self.sentinels] = 0

    def tokens(self, step: int) -> int:
        return self.batch_size * self.length

    def starts(self, first: int, last: int) -> tuple[int, np.ndarray]:
        epoch, starts = super().starts(first, last)
        return epoch, np.minimum(starts, self.text.size - self.length)

    def draw(self, first: int, last: int) -> Chunk:
        ids = self.read(first, last)
        key = (self.seed, np.repeat(np.arange(first, last), self.batch_size), np.tile(np.arange(self.batch_size), last - first))
        source, target = getattr(self, f"_{self.noise.kind}")(ids, key)
        # a token counts once, in whichever side it is: with the same number of tokens all kinds of noise have read the same text
        tokens = np.full(len(ids), self.length)
        return source_target_chunk(
            first, self.batch_size, self.max_length, with_end(source), with_end(target), tokens, ("denoising",), self.byte_lengths
        )  # fmt: skip

    def _spans(self, ids: np.ndarray, key: tuple) -> tuple[Masked, Masked]:
        """ids (sequences, length) -> source and target."""
        sizes = self.noise.of(self.length)
        if self.noise.mean_length is None:
            hidden = self._random_positions(ids, key, sizes.hidden)
        else:  # visible and hidden spans alternate, as in the authors' code
            visible_lengths = random_division(self.length - sizes.hidden, sizes.spans, key, KEPT_SPLIT)
            hidden_lengths = random_division(sizes.hidden, sizes.spans, key, SPLIT)
            ends = np.stack([visible_lengths, hidden_lengths], 2).reshape(len(ids), -1).cumsum(1)
            span = (np.arange(self.length)[None, :, None] >= ends[:, None, :]).sum(2)  # the number of each token's span
            hidden = span % 2 == 1
        opens = hidden & ~np.pad(hidden, ((0, 0), (1, 0)))[:, :-1]
        sentinel = self.sentinels[opens.cumsum(1).clip(1) - 1]
        source = np.where(opens, sentinel, ids), ~hidden | opens
        target = np.stack([sentinel, ids], 2), np.stack([opens, hidden], 2)
        return source, tuple(array.reshape(len(ids), -1) for array in target)

    def _dropped(self, ids: np.ndarray, key: tuple) -> tuple[Masked, Masked]:
        hidden = self._random_positions(ids, key, max(1, round(self.noise.rate * self.length)))
        return (ids, ~hidden), (ids, hidden)

    def _prefix(self, ids: np.ndarray, key: tuple) -> tuple[Masked, Masked]:
        # both sides get a token at least, and have room for the end token
        cut = 1 + (uniform(*key, 0, CUT) * (self.length - 1)).astype(int)
        before = np.arange(self.length) < cut[:, None]
        return (ids, before), (ids, ~before)

    def _whole(self, ids: np.ndarray, key: tuple) -> tuple[Masked, Masked]:
        seed, steps, numbers = key
        keys = zip(steps.tolist(), numbers.tolist(), strict=True)
        sources = [self._corrupted(tokens, generator(seed, step, number, WHOLE)) for tokens, (step, number) in zip(ids, keys, strict=True)]
        source = np.zeros((len(sources), max(map(len, sources))), np.int64)
        present = np.arange(source.shape[1]) < np.array([len(tokens) for tokens in sources])[:, None]
        source[present] = np.concatenate(sources)
        return (source, present), (ids, np.ones(ids.shape, bool))

    def _corrupted(self, tokens: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return a sequence with all kinds of noise that are set, no longer than before."""
        noise: Whole = self.noise
        if noise.permute_sentences:
            *sentences, rest = np.split(tokens, np.flatnonzero(tokens == SEP) + 1)  # an incomplete sentence stays at the end
            tokens = np.concatenate([*(sentences[i] for i in rng.permutation(len(sentences))), rest])
        if noise.rotate and rng.random() < noise.rotate:
            tokens = np.roll(tokens, -int(rng.integers(len(tokens))))
        if noise.infilled:
            tokens = self._infilled(tokens, rng)
        if noise.deleted:
            tokens = tokens[rng.random(len(tokens)) >= noise.deleted]
        if noise.masked:
            positions = rng.permutation(np.flatnonzero(tokens >= len(SPECIALS)))[: round(noise.masked * len(tokens))]
            drawn = self.ordinary[rng.integers(len(self.ordinary), size=len(positions))]
            tokens = tokens.copy()
            tokens[positions] = np.where(rng.random(len(positions)) < noise.random_share, drawn, MASK)
        if noise.shuffled:
            tokens = rng.permutation(tokens)
        return tokens if len(tokens) else np.array([MASK])

    def _infilled(self, tokens: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Replace spans by one `[MASK]` each, all places being equally likely; an empty span inserts one."""
        hidden = round(self.noise.infilled * len(tokens))
        lengths = np.zeros(0, int)
        while lengths.sum() < hidden:
            lengths = np.append(lengths, rng.poisson(self.noise.mean_length, size=hidden))
        # as in the authors' code, the last span is cut to what is left of the share
        lengths = lengths[: np.searchsorted(lengths.cumsum(), hidden) + 1]
        lengths[-1:] -= lengths.sum() - hidden
        # empty spans insert at most as many tokens as the others remove, so that the row is no longer than before
        empty = np.flatnonzero(lengths == 0)
        lengths = rng.permutation(np.delete(lengths, empty[hidden - np.count_nonzero(lengths) :]))
        # each stands before another visible token, or at the end: adjacent ones would be one
        before = np.sort(rng.choice(len(tokens) - hidden + 1, size=len(lengths), replace=False))
        positions = np.repeat(before, lengths) + np.arange(hidden)
        return np.insert(np.delete(tokens, positions), before, MASK)

    def _random_positions(self, ids: np.ndarray, key: tuple, count: int) -> np.ndarray:
        """Return a mask (sequences, length) with `count` random positions of each sequence."""
        sizes = np.full(len(ids), self.length)
        positions = random_subsets(sizes, np.full(len(ids), count), uniform(*key, np.arange(count)[:, None], HIDDEN))
        mask = np.zeros(ids.shape, bool)
        np.put_along_axis(mask, positions.T, True, axis=1)
        return mask


def random_division(items: int, groups: int, key: tuple, decision: int) -> np.ndarray:
    """Divide `items` into non-empty `groups`, all divisions equally likely: sizes (sequences, groups)."""
    sizes = np.full(len(key[1]), items - 1)
    cuts = random_subsets(sizes, np.full(len(sizes), groups - 1), uniform(*key, np.arange(groups - 1)[:, None], decision))
    cuts = np.sort(cuts.T + 1, axis=1)
    return np.diff(np.pad(cuts, ((0, 0), (1, 1)), constant_values=((0, 0), (0, items))), axis=1)


def with_end(masked: Masked) -> Side:
    """Return the sequences with an end token after each."""
    ids, present = masked
    ids = np.pad(ids, ((0, 0), (0, 1)), constant_values=SEP)
    present = np.pad(present, ((0, 0), (0, 1)), constant_values=True)
    return Side(ids[present], present.sum(1))
