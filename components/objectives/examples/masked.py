"""Examples with masked tokens."""

from bisect import bisect_right
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from components.core.errors import SesameError
from components.core.keyed import generator
from components.objectives.examples.batches import (
    TEXT_MULTIPLE,
    Batches,
    Chunk,
    Targets,
    bucket_by_length,
    chunk_bounds,
    padded_layout,
)
from components.objectives.examples.config import MaskedInputs
from components.objectives.examples.segments import document_windows, full_sentences, ranges, segment_pairs
from components.objectives.noise.spans import mask_spans
from components.objectives.noise.tokens import mask
from components.objectives.scoring import IGNORED
from components.text.encode import Shard, Split
from components.text.tokenizer import CLS, SEP, SPECIALS, Tokenizer, sentinels


class MaskedBatches(Batches):
    """Examples `[CLS] A [SEP] B [SEP]` or `[CLS] A [SEP]` in batches of similar length, built and masked again in every epoch.

    An epoch takes the shards of the text in a random order, and the examples of each in a random order; memory holds those of one shard.
    """

    varying_lengths = True

    def __init__(
        self, config: MaskedInputs, tokens: Tokenizer, text: Split, batch_size: int, max_length: int, seed: int,
        terms: Mapping[str, Literal["targets", "tokens"]] = MappingProxyType({"mlm": "targets"}),
    ):  # fmt: skip
        """`terms`: whether each loss term, except the question about a pair, is over the masked tokens or over all tokens."""
        self.terms = terms
        self.config, self.text, self.batch_size, self.max_length, self.seed = config, text, batch_size, max_length, seed
        self.ordinary, self.byte_lengths = sentinels.ordinary(tokens), np.asarray(tokens.byte_lengths)
        self.starts_word = tokens.starts_word if config.whole_word or config.span_probability else None
        self.starts = [0]
        """The first step of each shard visited so far, over all epochs, and of the next one."""
        self._load(0)
        if self.starts[-1] == 0 and not self.epoch_steps():
            raise SesameError(
                f"the text makes {len(self.examples)} examples, less than one batch of {batch_size}; use more text or a smaller batch_size"
            )

    def _load(self, visit: int) -> None:
        """Build the examples of the visited shard, and group them into batches."""
        self.visit, (epoch, position) = visit, divmod(visit, len(self.text.shards))
        index = int(generator(self.seed, epoch).permutation(len(self.text.shards))[position])
        self.epoch, self.index, self.shard = epoch, index, self.text.shards[index]
        self.examples, self.sizes = self._examples(self.shard, index, 0 if self.config.static else epoch)
        specials = np.where(self.examples[:, 2] < self.examples[:, 3], 3, 2) + self._document_ends(self.examples)
        self.lengths = self.sizes.sum(1) + specials
        rng = generator(self.seed, epoch, index)
        self.order = bucket_by_length(np.arange(len(self.examples)), self.lengths, self.batch_size, rng)
        if visit == len(self.starts) - 1:
            self.starts.append(self.starts[-1] + len(self.order))

    def _examples(self, shard: Shard, index: int, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the examples of a shard, (n, 5), and the numbers of ordinary tokens in their As and Bs, (n, 2)."""
        rng = generator(self.seed, epoch, index, 1)
        if self.config.inputs in ("full_sentences", "doc_sentences"):
            examples = full_sentences(shard, self.max_length, across=self.config.inputs == "full_sentences")
        elif not self.config.paired:
            examples = document_windows(shard, self.max_length)
        else:
            examples = self._pairs(shard, rng)
        specials = np.diff(np.searchsorted(shard.segments[:, 1], examples[:, :4]), axis=1)  # [SEP]s inside A, between, inside B
        specials[:, 0] += self._document_ends(examples)  # [CLS]s
        sizes = (np.diff(examples[:, :4], axis=1) - specials)[:, ::2]
        nonempty = sizes.sum(1) > 0  # a segment may have no token
        return examples[nonempty], sizes[nonempty]

    def _pairs(self, shard: Shard, rng: np.random.Generator) -> np.ndarray:
        single, swapped = self.config.inputs == "sentence_pairs", self.config.question == "sop"
        try:
            return segment_pairs(shard, self.max_length, rng, single, swapped)
        except SesameError:
            if len(self.text.shards) == 1:
                raise
            return document_windows(shard, self.max_length)  # the last shard may be a single document, without a pair

    def _document_ends(self, examples: np.ndarray) -> np.ndarray:
        """Return the numbers of document ends inside the As, (n,): only full sentences go across them."""
        firsts = self.shard.document_tokens[:-1]
        return np.diff(np.searchsorted(firsts, examples[:, :2]), axis=1)[:, 0]

    def _load_step(self, step: int) -> int:
        """Load the shard of a step; return the step's number in it."""
        while step >= self.starts[-1]:
            self._load(len(self.starts) - 1)
        visit = bisect_right(self.starts, step) - 1
        if visit != self.visit:
            self._load(visit)
        return step - self.starts[visit]

    def restart(self) -> None:
        """Load the first shard of the first epoch."""
        self._load_step(0)

    def selected(self, step: int) -> np.ndarray:
        """Load the shard of a step; return the step's examples, (batch,)."""
        number = self._load_step(step)
        return self.order[number]

    def epoch_steps(self) -> int:
        while len(self.starts) <= len(self.text.shards):
            self._load(len(self.starts) - 1)
        return self.starts[len(self.text.shards)]

    def tokens(self, step: int) -> int:
        selected = self.selected(step)  # before `self.lengths`, which it may replace
        return int(self.lengths[selected].sum())

    def bounds(self, step: int) -> tuple[int, int]:
        self._load_step(step)
        return chunk_bounds(step, *self.starts[self.visit : self.visit + 2], self.batch_size * self.max_length)

    def draw(self, first: int, last: int) -> Chunk:
        start = self._load_step(first)
        selected = self.order[start : start + last - first].ravel()
        examples, sizes, lengths = self.examples[selected], self.sizes[selected], self.lengths[selected]
        source = self._ordinary_positions(examples)
        tokens = self.shard.tokens[source].astype(np.int64)
        sequence, position = self._positions(examples, sizes, source)
        opens_text = np.append(True, (np.diff(position) != 1) | (np.diff(sequence) != 0))[: len(position)]  # after a special token
        opens_word = None if self.starts_word is None else self.starts_word[tokens] | opens_text
        key = (self.seed, 0 if self.config.static else self.epoch, self.index)
        if self.config.span_probability:
            inputs, targets, edges = mask_spans(
                tokens, sizes.sum(1), self.config, self.ordinary, key, selected, opens_word, opens_text
            )  # fmt: skip
        else:
            inputs, targets = mask(tokens, sizes.sum(1), self.config, self.ordinary, key, selected, opens_word)

        widths, begins = padded_layout(lengths, self.batch_size, TEXT_MULTIPLE, self.max_length)
        ids, segment_ids = np.zeros((2, self.batch_size * widths.sum()), np.int64)
        ids[ranges(begins, lengths)] = SEP  # overwritten by all other tokens
        ids[begins], ids[begins[sequence] + position] = CLS, inputs
        paired = examples[:, 2] < examples[:, 3]
        segment_ids[ranges(begins + 2 + sizes[:, 0], np.where(paired, sizes[:, 1] + 1, 0))] = 1

        of_target, labels = sequence[targets], tokens[targets]
        laid_out = Targets.of(of_target, position[targets], labels, len(selected), self.batch_size, self.max_length)
        counts = {"tokens": lengths, "bytes": np.bincount(of_target, self.byte_lengths[labels], minlength=len(selected))}
        counts |= {term: laid_out.counts if over == "targets" else lengths for term, over in self.terms.items()}
        if self.config.question:
            counts[self.config.question] = examples[:, 4] != IGNORED
        flat = {
            "ids": (ids, widths), "segment_ids": (segment_ids, widths), "lengths": (lengths, None), "answers": (examples[:, 4], None),
        } | laid_out.flat  # fmt: skip
        if self.config.span_probability:
            left, right = np.zeros((2, len(laid_out.positions)), np.int64)
            left[laid_out.at], right[laid_out.at] = position[edges[:, 0]] - 1, position[edges[:, 1]] + 1  # at least [CLS] and [SEP]
            flat |= {"left": (left, laid_out.widths), "right": (right, laid_out.widths)}
        return Chunk.from_arrays(first, self.batch_size, flat, counts)

    def _ordinary_positions(self, examples: np.ndarray) -> np.ndarray:
        """Return the positions in the shard of all tokens of the As and Bs, without the special tokens inside them."""
        first, end = examples[:, [0, 2]].ravel(), examples[:, [1, 3]].ravel()
        positions = ranges(first, end - first)
        tokens = self.shard.tokens[positions]
        return positions[(tokens != SEP) & (tokens != CLS)]

    def _positions(self, examples: np.ndarray, sizes: np.ndarray, source: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the sequence of each ordinary token, and its position in it; `source` are the positions in the shard."""
        totals = sizes.sum(1)
        sequence = np.repeat(np.arange(len(examples)), totals)
        rank = np.arange(len(source)) - np.repeat(np.cumsum(totals) - totals, totals)
        if self.config.inputs == "full_sentences":  # after [CLS] and the [SEP]s between documents
            documents = self.shard.document_tokens
            opening = np.searchsorted(documents, examples[:, 0], side="right")[sequence]
            return sequence, 1 + rank + np.searchsorted(documents, source, side="right") - opening
        return sequence, 1 + rank + (rank >= sizes[sequence, 0])  # after [CLS], and the [SEP] after A


def scatter_targets(ids: Tensor, positions: Tensor, values: Tensor, labels: Tensor) -> Tensor:
    """ids (batch, length) -> with `values` (batch, targets) at `positions`, except where a label is IGNORED."""
    wider = torch.cat([ids, ids[:, :1]], 1)  # ignored targets go to an extra column
    return wider.scatter(1, torch.where(labels == IGNORED, ids.shape[1], positions), values)[:, :-1]


def explain_masked(batches: MaskedBatches, step: int, tokens: Tokenizer) -> list[dict[str, str]]:
    """Show targets as `[dog → MASK]` (masked), `[dog → cat]` (replaced by another token) or `[dog → dog]` (unchanged)."""
    tensors, selected = batches[step].tensors, batches.selected(step)
    examples, config = batches.examples[selected], batches.config
    labels_of_all = scatter_targets(
        torch.full_like(tensors["ids"], IGNORED), tensors["positions"], tensors["labels"], tensors["labels"]
    )  # fmt: skip
    first = batches.text.first_documents[batches.index]
    positive = "exchanged" if config.question == "sop" else "B is random"

    def name(i: int) -> str:
        return SPECIALS[i].strip("[]") if i < len(SPECIALS) else tokens.pieces[i].decode(errors="replace")

    def show(seen: int, target: int) -> str:
        if target == IGNORED:
            return {CLS: "", SEP: " |"}.get(seen, name(seen))
        space = " " if name(target).startswith(" ") else ""
        return f"{space}[{name(target).strip()} → {name(seen).strip()}]"

    explained = []
    rows = zip(tensors["ids"], labels_of_all, tensors["lengths"].tolist(), examples, strict=True)
    for ids, labels, length, (a, a_end, b, b_end, answer) in rows:
        text = "".join(show(*pair) for pair in zip(ids[:length].tolist(), labels[:length].tolist(), strict=True))
        opening, closing = np.searchsorted(batches.shard.document_tokens, [[a, b], [a_end - 1, b_end - 1]], side="right") - 1
        sides = 2 if b < b_end else 1
        documents = first + ranges(opening[:sides], (closing - opening + 1)[:sides])
        question = {IGNORED: "no question", 0: "B follows A", 1: positive}[answer] if config.paired else "no pairs"
        explained.append({"documents": " ".join(map(str, dict.fromkeys(documents.tolist()))), "asked": question, "text": text.strip()})
    return explained
