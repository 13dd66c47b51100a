"""Rows of running text, spoilt, and what is to be written of them."""

import numpy as np

from components.core.errors import SesameError
from components.core.keyed import generator, uniform
from components.objectives.denoising.config import Denoising, Whole
from components.objectives.examples.source_target import Side, laid_out
from components.objectives.examples.stream import Stream
from components.objectives.examples.windows import Batches, Window
from components.objectives.noise.tokens import subsets
from components.text.encode import Split
from components.text.tokenizer import MASK, SEP, SPECIALS, Tokenizer, sentinels

HIDDEN, SPLIT, KEPT_SPLIT, CUT, SPOILT = 1, 2, 3, 4, 5  # what a keyed number decides


class DenoisingBatches(Batches):
    """Rows of the stream, as many tokens each as make source and target fit the model. No row is padded where all lose
    as much: the last one of an epoch begins in the row before it."""

    def __init__(self, config: Denoising, tokens: Tokenizer, text: Split, batch_size: int, max_length: int, seed: int):
        self.noise, self.stream, self.batch_size, self.seed = config.noise, Stream(text, seed), batch_size, seed
        self.ordinary = sentinels.ordinary(tokens)
        self.sentinels = np.array(sentinels.ids(tokens.vocab_size, config.sentinels(max_length)), dtype=np.int64)
        self.byte_lengths = np.array(tokens.byte_lengths)
        self.byte_lengths[self.sentinels] = 0
        self.length = {"spans": lambda: self.noise.sizes(max_length).text, "prefix": lambda: max_length}.get(
            self.noise.kind, lambda: max_length - 1
        )()
        self.rows = -(-self.stream.size // self.length)
        if (whole := self.stream.size // self.length) < batch_size:
            raise SesameError(
                f"the text has {self.stream.size} tokens, {whole} rows of {self.length}, less than one batch of {batch_size}; "
                "use more text or a smaller batch_size"
            )

    def epoch_steps(self) -> int:
        return self.rows // self.batch_size

    def tokens(self, step: int) -> int:
        return self.batch_size * self.length

    def documents(self, step: int) -> list[str]:
        """Of each row of a step, the documents that it has text of."""
        epoch, starts = self._starts(step, step + 1)
        return [self.stream.documents(epoch, start, start + self.length) for start in starts.tolist()]

    def _starts(self, first: int, last: int) -> tuple[int, np.ndarray]:
        """The epoch of some steps, and where in it each of their rows begins."""
        epoch, index = divmod(first, self.epoch_steps())
        rows = index * self.batch_size + np.arange((last - first) * self.batch_size)
        return epoch, np.minimum(rows * self.length, self.stream.size - self.length)

    def draw(self, first: int, last: int) -> Window:
        epoch, starts = self._starts(first, last)
        text = self.stream.read(epoch, int(starts[0]), int(starts[-1]) + self.length)
        ids = text[(starts - starts[0])[:, None] + np.arange(self.length)]
        key = (self.seed, np.repeat(np.arange(first, last), self.batch_size), np.tile(np.arange(self.batch_size), last - first))
        source, target = getattr(self, f"_{self.noise.kind}")(ids, key)
        # a token counts once, whichever side it stands on: at as many tokens all kinds of noise have read the same text
        read = np.full(len(ids), self.length)
        return laid_out(first, self.batch_size, ended(*source), ended(*target), read, ("denoising",), self.byte_lengths)

    def _spans(self, ids: np.ndarray, key: tuple) -> tuple[tuple, tuple]:
        """ids (rows, length) -> tokens of source and of target, each (rows, width), and which of them are there."""
        sizes = self.noise.of(self.length)
        if self.noise.mean_length is None:
            hidden = self._chosen(ids, key, sizes.hidden)
        else:  # kept and hidden spans by turns, as the authors' code has them
            kept = divided(self.length - sizes.hidden, sizes.spans, key, KEPT_SPLIT)
            own = divided(sizes.hidden, sizes.spans, key, SPLIT)
            ends = np.stack([kept, own], 2).reshape(len(ids), -1).cumsum(1)
            place = (np.arange(self.length)[None, :, None] >= ends[:, None, :]).sum(2)  # the number of the span that a token is of
            hidden = place % 2 == 1
        opens = hidden & ~np.pad(hidden, ((0, 0), (1, 0)))[:, :-1]
        stands = self.sentinels[opens.cumsum(1).clip(1) - 1]
        source = np.where(opens, stands, ids), ~hidden | opens
        target = np.stack([stands, ids], 2), np.stack([opens, hidden], 2)
        return source, tuple(part.reshape(len(ids), -1) for part in target)

    def _dropped(self, ids: np.ndarray, key: tuple) -> tuple[tuple, tuple]:
        hidden = self._chosen(ids, key, max(1, round(self.noise.rate * self.length)))
        return (ids, ~hidden), (ids, hidden)

    def _prefix(self, ids: np.ndarray, key: tuple) -> tuple[tuple, tuple]:
        # both sides have a token, and room for the end of a text
        cut = 1 + (uniform(*key, 0, CUT) * (self.length - 1)).astype(int)
        before = np.arange(self.length) < cut[:, None]
        return (ids, before), (ids, ~before)

    def _whole(self, ids: np.ndarray, key: tuple) -> tuple[tuple, tuple]:
        seed, steps, numbers = key
        keys = zip(steps.tolist(), numbers.tolist(), strict=True)
        rows = [self._spoilt(row, generator(seed, *own, SPOILT)) for row, own in zip(ids, keys, strict=True)]
        source = np.zeros((len(rows), max(map(len, rows))), np.int64)
        there = np.arange(source.shape[1]) < np.array([len(row) for row in rows])[:, None]
        source[there] = np.concatenate(rows)
        return (source, there), (ids, np.ones(ids.shape, bool))

    def _spoilt(self, row: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """A row in all the ways that are asked for, no longer than it was."""
        noise: Whole = self.noise
        if noise.permute_sentences:
            *sentences, rest = np.split(row, np.flatnonzero(row == SEP) + 1)  # one that the row cuts stays at the end
            row = np.concatenate([*(sentences[i] for i in rng.permutation(len(sentences))), rest])
        if noise.rotate and rng.random() < noise.rotate:
            row = np.roll(row, -int(rng.integers(len(row))))
        if noise.infilled:
            row = self._infilled(row, rng)
        if noise.deleted:
            row = row[rng.random(len(row)) >= noise.deleted]
        if noise.masked:
            places = rng.permutation(np.flatnonzero(row >= len(SPECIALS)))[: round(noise.masked * len(row))]
            drawn = self.ordinary[rng.integers(len(self.ordinary), size=len(places))]
            row = row.copy()
            row[places] = np.where(rng.random(len(places)) < noise.random_share, drawn, MASK)
        if noise.shuffled:
            row = rng.permutation(row)
        return row if len(row) else np.array([MASK])

    def _infilled(self, row: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Spans as one `[MASK]` each. Those of length 0 are no more than what the others have taken away."""
        left = round(self.noise.infilled * len(row))
        hidden, opens, more = np.zeros(len(row), bool), np.zeros(len(row), bool), []
        room = 0
        for length in rng.poisson(self.noise.mean_length, size=4 * left + 4):
            if left <= 0:
                break
            place = int(rng.integers(len(row)))
            own = slice(place, place + min(int(length), left))
            if length == 0:
                more.append(place)
            elif not hidden[max(0, place - 1) : own.stop + 1].any():  # two spans that met would be one
                hidden[own] = True
                opens[place] = True
                taken = int(hidden[own].sum())
                left, room = left - taken, room + taken - 1
        row = np.where(opens, MASK, row)
        keep = ~hidden | opens
        more = np.sort(more[:room])
        return np.insert(row, more.astype(int), MASK)[np.insert(keep, more.astype(int), True)]

    def _chosen(self, ids: np.ndarray, key: tuple, count: int) -> np.ndarray:
        """(rows, length): `count` places of each row, all subsets alike."""
        sizes = np.full(len(ids), self.length)
        chosen = subsets(sizes, np.full(len(ids), count), uniform(*key, np.arange(count)[:, None], HIDDEN))
        hidden = np.zeros(ids.shape, bool)
        np.put_along_axis(hidden, chosen.T, True, axis=1)
        return hidden


def divided(items: int, parts: int, key: tuple, decides: int) -> np.ndarray:
    """`items` into `parts` of one at least, all divisions alike: (rows, parts)."""
    sizes = np.full(len(key[1]), items - 1)
    cuts = subsets(sizes, np.full(len(sizes), parts - 1), uniform(*key, np.arange(parts - 1)[:, None], decides))
    cuts = np.sort(cuts.T + 1, axis=1)
    return np.diff(np.pad(cuts, ((0, 0), (1, 1)), constant_values=((0, 0), (0, items))), axis=1)


def ended(ids: np.ndarray, there: np.ndarray) -> Side:
    """Tokens (rows, width) and which of them are there, with the end of a text after them."""
    ids, there = np.pad(ids, ((0, 0), (0, 1)), constant_values=SEP), np.pad(there, ((0, 0), (0, 1)), constant_values=True)
    return Side(ids[there], there.sum(1))
