"""Rows of which some tokens are hidden."""

from bisect import bisect_right
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from components.core.errors import SesameError
from components.core.keyed import generator
from components.objectives.examples.config import MaskedInputs
from components.objectives.examples.segments import pairs, ranges, spans, whole_sentences
from components.objectives.examples.windows import Batches, Window, bucketed, padded, within
from components.objectives.noise.spans import mask_spans
from components.objectives.noise.tokens import mask
from components.objectives.scoring import IGNORED
from components.text.encode import Shard, Split
from components.text.tokenizer import CLS, SEP, SPECIALS, Tokenizer, sentinels


class MaskedBatches(Batches):
    """Examples `[CLS] A [SEP] B [SEP]` or `[CLS] A [SEP]` in batches of similar length, made and masked again in every
    epoch.

    An epoch takes the shards of the text in a random order, and the examples of each in a random order; memory holds those of one shard.
    """

    def __init__(
        self, config: MaskedInputs, tokens: Tokenizer, text: Split, batch_size: int, max_length: int, seed: int,
        parts: Mapping[str, Literal["targets", "tokens"]] = MappingProxyType({"mlm": "targets"}),
    ):  # fmt: skip
        """`parts`: of each part of the loss, but for the question, whether it is asked of the hidden tokens or of all."""
        self.parts = parts
        self.config, self.text, self.batch_size, self.max_length, self.seed = config, text, batch_size, max_length, seed
        self.ordinary, self.byte_lengths = sentinels.ordinary(tokens), np.asarray(tokens.byte_lengths)
        self.starts_word = tokens.starts_word if config.whole_word or config.span_probability else None
        self.starts = [0]
        """The first step of each shard visited so far, epoch after epoch, and of the next one."""
        self._load(0)
        if self.starts[-1] == 0 and not self.epoch_steps():
            raise SesameError(
                f"the text makes {len(self.examples)} examples, less than one batch of {batch_size}; use more text or a smaller batch_size"
            )

    def _load(self, number: int) -> None:
        """Make the examples of the shard that is visited as this one, and put them into batches."""
        self.visit, (epoch, place) = number, divmod(number, len(self.text.shards))
        index = int(generator(self.seed, epoch).permutation(len(self.text.shards))[place])
        self.epoch, self.index, self.shard = epoch, index, self.text.shards[index]
        self.examples, self.inner = self._examples(self.shard, index, 0 if self.config.static else epoch)
        self.lengths = self.inner.sum(1) + np.where(self.examples[:, 2] < self.examples[:, 3], 3, 2) + self._ends(self.examples)
        rng = generator(self.seed, epoch, index)
        self.order = bucketed(np.arange(len(self.examples)), self.lengths, self.batch_size, rng)
        if number == len(self.starts) - 1:
            self.starts.append(self.starts[-1] + len(self.order))

    def _examples(self, shard: Shard, index: int, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """The examples of a shard, (n, 5), and the ordinary tokens of their As and Bs, (n, 2)."""
        rng = generator(self.seed, epoch, index, 1)
        if self.config.inputs in ("full_sentences", "doc_sentences"):
            examples = whole_sentences(shard, self.max_length, across=self.config.inputs == "full_sentences")
        elif not self.config.paired:
            examples = spans(shard, self.max_length)
        else:
            examples = self._pairs(shard, rng)
        inside = np.diff(np.searchsorted(shard.segments[:, 1], examples[:, :4]), axis=1)  # [SEP]s inside A, between, inside B
        inside[:, 0] += self._ends(examples)  # [CLS]s
        ordinary = (np.diff(examples[:, :4], axis=1) - inside)[:, ::2]
        some = ordinary.sum(1) > 0  # a segment may make no token
        return examples[some], ordinary[some]

    def _pairs(self, shard: Shard, rng: np.random.Generator) -> np.ndarray:
        single, swapped = self.config.inputs == "sentence_pairs", self.config.question == "sop"
        try:
            return pairs(shard, self.max_length, rng, single, swapped)
        except SesameError:
            if len(self.text.shards) == 1:
                raise
            return spans(shard, self.max_length)  # the last shard may be a single document: nothing can be asked of it

    def _ends(self, examples: np.ndarray) -> np.ndarray:
        """Ends of documents inside the As, (n,): only full sentences go over them."""
        firsts = self.shard.document_tokens[:-1]
        return np.diff(np.searchsorted(firsts, examples[:, :2]), axis=1)[:, 0]

    def _visit(self, step: int) -> int:
        """Have the shard loaded that a step is of; the step's number in it."""
        while step >= self.starts[-1]:
            self._load(len(self.starts) - 1)
        number = bisect_right(self.starts, step) - 1
        if number != self.visit:
            self._load(number)
        return step - self.starts[number]

    def restart(self) -> None:
        """Have the examples of the first shard of the first epoch at hand."""
        self._visit(0)

    def chosen(self, step: int) -> np.ndarray:
        """The examples of a step, (batch,); loads its shard."""
        place = self._visit(step)
        return self.order[place]

    def epoch_steps(self) -> int:
        while len(self.starts) <= len(self.text.shards):
            self._load(len(self.starts) - 1)
        return self.starts[len(self.text.shards)]

    def tokens(self, step: int) -> int:
        chosen = self.chosen(step)  # first, since it may load another shard with other lengths
        return int(self.lengths[chosen].sum())

    def bounds(self, step: int) -> tuple[int, int]:
        self._visit(step)
        return within(step, *self.starts[self.visit : self.visit + 2], self.batch_size * self.max_length)

    def draw(self, first: int, last: int) -> Window:
        start = self._visit(first)
        chosen = self.order[start : start + last - first].ravel()
        examples, inner, lengths = self.examples[chosen], self.inner[chosen], self.lengths[chosen]
        sizes, paired = inner.sum(1), examples[:, 2] < examples[:, 3]
        at = self._ordinary(examples)
        tokens = self.shard.tokens[at].astype(np.int64)
        row = np.repeat(np.arange(len(chosen)), sizes)
        rank = np.arange(len(tokens)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        place = 1 + rank + (rank >= inner[row, 0])  # behind [CLS], and the [SEP] after A
        if self.config.inputs == "full_sentences":  # and those between documents
            document = np.searchsorted(self.shard.document_tokens, at, side="right")
            place = 1 + rank + document - np.searchsorted(self.shard.document_tokens, examples[:, 0], side="right")[row]
        texts = np.append(True, (np.diff(place) != 1) | (np.diff(row) != 0))[: len(place)]  # a special stands before the token
        opens = None if self.starts_word is None else self.starts_word[tokens] | texts
        key = (self.seed, 0 if self.config.static else self.epoch, self.index)
        if self.config.span_probability:
            seen, targets, spans_ = mask_spans(tokens, sizes, self.config, self.ordinary, key, chosen, opens, texts)
        else:
            seen, targets = mask(tokens, sizes, self.config, self.ordinary, key, chosen, opens)

        widths, begins = padded(lengths, self.batch_size)
        ids, segment_ids = np.zeros((2, self.batch_size * widths.sum()), np.int64)
        ids[ranges(begins, lengths)] = SEP  # wherever nothing else stands
        ids[begins], ids[begins[row] + place] = CLS, seen
        segment_ids[ranges(begins + 2 + inner[:, 0], np.where(paired, inner[:, 1] + 1, 0))] = 1

        row, asked = row[targets], np.bincount(row[targets], minlength=len(chosen))
        most, begins = padded(asked, self.batch_size)
        places, labels = np.zeros(self.batch_size * most.sum(), np.int64), np.full(self.batch_size * most.sum(), IGNORED)
        at = begins[row] + np.arange(len(row)) - (np.cumsum(asked) - asked)[row]
        places[at], labels[at] = place[targets], tokens[targets]

        counts = {"tokens": lengths, "bytes": np.bincount(row, self.byte_lengths[tokens[targets]], minlength=len(chosen))}
        counts |= {part: asked if of == "targets" else lengths for part, of in self.parts.items()}
        if self.config.question:
            counts[self.config.question] = examples[:, 4] != IGNORED
        flat = {
            "ids": (ids, widths), "segment_ids": (segment_ids, widths), "places": (places, most), "labels": (labels, most),
            "lengths": (lengths, None), "answers": (examples[:, 4], None),
        }  # fmt: skip
        if self.config.span_probability:
            left, right = np.zeros((2, len(places)), np.int64)
            left[at], right[at] = place[spans_[:, 0]] - 1, place[spans_[:, 1]] + 1  # [CLS] and [SEP], if nothing else
            flat |= {"left": (left, most), "right": (right, most)}
        return Window.laid_out(first, self.batch_size, flat, counts)

    def _ordinary(self, examples: np.ndarray) -> np.ndarray:
        """Where the tokens of the rows' As and Bs stand in the shard, one after another, without the specials inside them."""
        first, end = examples[:, [0, 2]].ravel(), examples[:, [1, 3]].ravel()
        at = ranges(first, end - first)
        tokens = self.shard.tokens[at]
        return at[(tokens != SEP) & (tokens != CLS)]


def at(hidden: Tensor, places: Tensor) -> Tensor:
    """hidden (batch, length, width), places (batch, targets) -> (batch, targets, width)."""
    return hidden.gather(1, places[:, :, None].expand(-1, -1, hidden.shape[2]))


def put(ids: Tensor, places: Tensor, values: Tensor, labels: Tensor) -> Tensor:
    """ids (batch, length) with `values` (batch, targets) at `places`, but where `labels` says that there is no target."""
    wider = torch.cat([ids, ids[:, :1]], 1)  # what is no target goes behind the end
    return wider.scatter(1, torch.where(labels == IGNORED, ids.shape[1], places), values)[:, :-1]


def explained(batches: MaskedBatches, step: int, tokens: Tokenizer) -> list[dict[str, str]]:
    """`[dog → MASK]` is a target that the model doesn't see, `[dog → cat]` one replaced by another piece, `[dog → dog]` one left."""
    rows, chosen = batches[step].rows, batches.chosen(step)
    examples, config = batches.examples[chosen], batches.config
    asked = put(torch.full_like(rows["ids"], IGNORED), rows["places"], rows["labels"], rows["labels"])  # of every place
    first = batches.text.first_documents[batches.index]
    one = "exchanged" if config.question == "sop" else "B is random"

    def name(i: int) -> str:
        return SPECIALS[i].strip("[]") if i < len(SPECIALS) else tokens.pieces[i].decode(errors="replace")

    def piece(seen: int, target: int) -> str:
        if target == IGNORED:
            return {CLS: "", SEP: " |"}.get(seen, name(seen))
        space = " " if name(target).startswith(" ") else ""
        return f"{space}[{name(target).strip()} → {name(seen).strip()}]"

    shown = []
    for ids, labels, length, (a, end, b, b_end, answer) in zip(rows["ids"], asked, rows["lengths"].tolist(), examples, strict=True):
        text = "".join(piece(*pair) for pair in zip(ids[:length].tolist(), labels[:length].tolist(), strict=True))
        opening, closing = np.searchsorted(batches.shard.document_tokens, [[a, b], [end - 1, b_end - 1]], side="right") - 1
        sides = 2 if b < b_end else 1
        documents = first + ranges(opening[:sides], (closing - opening + 1)[:sides])
        question = {IGNORED: "no question", 0: "B follows A", 1: one}[answer] if config.paired else "no pairs"
        shown.append({"documents": " ".join(map(str, dict.fromkeys(documents.tolist()))), "asked": question, "text": text.strip()})
    return shown
