"""Quick-thoughts (Logeswaran and Lee 2018, section 3)."""

from collections.abc import Sequence
from copy import deepcopy

import numpy as np
import torch
from torch import Tensor, nn

from components.models.contract import LanguageModel
from components.objectives.contract import Losses
from components.objectives.examples import sentences
from components.objectives.examples.segments import ranges
from components.objectives.examples.windows import Batch, Grouped, Rows, Window
from components.text.encode import Split

RIVALS = 64
"""Sentences that a neighbour is found among in validation: among more it is harder, whatever the batches of the
training."""


class QuickThoughts(sentences.SentenceObjective):
    """Of all other sentences of the batch, which are the neighbours? The probability of each is a softmax over inner products. Loss and
    accuracy are of sentences; bits per byte are those that it takes to find a neighbour, over the bytes of the sentence."""

    main = "neighbour"

    def batches(self, text: Split, batch_size: int, max_length: int, seed: int) -> "FoundSentences":
        return FoundSentences(self.tokenizer, text, batch_size, max_length, seed)

    def validation(self, text: Split, batch_size: int, max_length: int) -> "Rivals":
        return Rivals(self.batches(text, 1, max_length, seed=0), RIVALS)

    def networks(self, model: LanguageModel) -> dict[str, nn.Module]:
        if self.config.encoders == "one":
            return {}
        self.other = deepcopy(model)
        with torch.no_grad():
            for parameter in self.other.parameters():  # weights of its own, of the same distribution: the same ones in another order
                parameter.copy_(parameter.flatten()[torch.randperm(parameter.numel())].view_as(parameter))
        for part in sentences.unreached(self.other):
            getattr(self.other, part).requires_grad_(False)
        return {"candidates": self.other}

    def losses(self, model: LanguageModel, rows: Rows, carry: None) -> tuple[Losses, None]:
        asked = sentences.vectors(model, rows)
        candidates = asked if self.config.encoders == "one" else sentences.vectors(self.other, rows)
        scores = (asked.float() @ candidates.float().T).fill_diagonal_(-torch.inf)
        beside = rows["documents"][1:] == rows["documents"][:-1]  # (batch - 1,): whether row i + 1 follows on row i
        right = torch.diag(beside, 1) | torch.diag(beside, -1)  # (batch, batch): the neighbours of each row
        found = right.sum(1)
        each = -scores.log_softmax(1).masked_fill(~right, 0).sum(1) / found.clamp(min=1)
        return {"neighbour": (each.sum(), hits(scores, right) if not model.training else found.new_zeros(()))}, None

    def explain(self, batches: "FoundSentences", step: int) -> list[dict[str, str]]:
        """`+` follows on the sentence above."""
        rows = super().explain(batches, step)
        above = [None, *(row["documents"] for row in rows)]
        return [row | {"text": "+ " + row["text"]} if row["documents"] == other else row for row, other in zip(rows, above, strict=False)]


def hits(scores: Tensor, right: Tensor) -> Tensor:
    """scores, right (batch, batch) -> of how many rows the best other one is a neighbour."""
    return right.gather(1, scores.argmax(1, keepdim=True)).sum()


class Rivals(Grouped):
    """Sentences of a whole text, among as many each."""

    single: "FoundSentences"

    def joined(self, rows: Sequence[Batch]) -> Batch:
        read, counts = super().joined(rows)
        found = asked(read["documents"].numpy()[None])
        sizes = self.single.byte_lengths[read["ids"].numpy()].sum(1)
        return Batch(read, counts | {"neighbour": float(found.sum()), "bytes": float((sizes * found).sum())})


def asked(documents: np.ndarray) -> np.ndarray:
    """documents (steps, batch) that the rows of steps are of -> which rows have a neighbour in their step, (steps *
    batch,)."""
    beside = documents[:, 1:] == documents[:, :-1]
    return (np.pad(beside, ((0, 0), (1, 0))) | np.pad(beside, ((0, 0), (0, 1)))).ravel()


class FoundSentences(sentences.SentenceBatches):
    """Documents in a random order, their sentences one after another: a step has the neighbours that are to be found, and the rest of
    their documents as rivals that are hard to tell from them, as in the paper. A sentence is asked where a neighbour is in the step."""

    def ordered(self, rng: np.random.Generator) -> np.ndarray:
        _, firsts, sizes = np.unique(self.documents, return_index=True, return_counts=True)
        order = rng.permutation(len(firsts))
        return ranges(firsts[order], sizes[order])

    def draw(self, first: int, last: int) -> Window:
        chosen = self.chosen(first, last)
        ids, documents = self.read(chosen), self.documents[chosen]
        found = asked(documents.reshape(-1, self.batch_size))
        counts = {"tokens": self.lengths[chosen], "neighbour": found, "bytes": self.bytes(*ids) * found}
        flat = {"ids": ids, "lengths": (self.lengths[chosen], None), "documents": (documents, None)}
        return Window.laid_out(first, self.batch_size, flat, counts)


Objective = QuickThoughts
