"""Quick-thoughts (Logeswaran and Lee 2018, section 3)."""

from collections.abc import Sequence
from copy import deepcopy

import numpy as np
import torch
from torch import Tensor, nn

from components.models.contract import LanguageModel
from components.objectives.contract import Losses
from components.objectives.examples import sentences
from components.objectives.examples.batches import Batch, Chunk, GroupedBatches, Tensors
from components.objectives.examples.segments import ranges
from components.text.encode import Split

VALIDATION_BATCH = 64
"""Sentences of a validation batch, whatever the training's batch size: a neighbour is harder to find among more sentences."""


class QuickThoughts(sentences.SentenceObjective):
    """Which of the other sentences of the batch are the neighbours? Their probabilities are a softmax over inner products.

    Loss and accuracy are per sentence; bits per byte are the bits to identify a neighbour, over the bytes of the sentence.
    """

    main = "neighbour"

    def batches(self, text: Split, batch_size: int, max_length: int, seed: int) -> "ConsecutiveSentences":
        return ConsecutiveSentences(self.tokenizer, text, batch_size, max_length, seed)

    def validation(self, text: Split, batch_size: int, max_length: int) -> "ValidationSentences":
        return ValidationSentences(self.batches(text, 1, max_length, seed=0), VALIDATION_BATCH)

    def networks(self, model: LanguageModel) -> dict[str, nn.Module]:
        if self.config.encoders == "one":
            return {}
        self.candidate_encoder = deepcopy(model)
        with torch.no_grad():
            for parameter in self.candidate_encoder.parameters():  # other weights of the same distribution: shuffled
                parameter.copy_(parameter.flatten()[torch.randperm(parameter.numel())].view_as(parameter))
        for module in sentences.unused_modules(self.candidate_encoder):
            getattr(self.candidate_encoder, module).requires_grad_(False)
        return {"candidates": self.candidate_encoder}

    def losses(self, model: LanguageModel, batch: Tensors, carry: None) -> tuple[Losses, None]:
        vectors = sentences.sentence_vectors(model, batch)
        candidates = vectors if self.config.encoders == "one" else sentences.sentence_vectors(self.candidate_encoder, batch)
        scores = (vectors.float() @ candidates.float().T).fill_diagonal_(-torch.inf)
        follows = batch["documents"][1:] == batch["documents"][:-1]  # (batch - 1,): whether sentence i + 1 follows sentence i
        neighbours = torch.diag(follows, 1) | torch.diag(follows, -1)  # (batch, batch)
        count = neighbours.sum(1)
        losses = -scores.log_softmax(1).masked_fill(~neighbours, 0).sum(1) / count.clamp(min=1)
        correct = count.new_zeros(()) if model.training else hits(scores, neighbours)
        return {"neighbour": (losses.sum(), correct)}, None

    def explain(self, batches: "ConsecutiveSentences", step: int) -> list[dict[str, str]]:
        """Mark a sentence that follows the one above with `+`."""
        rows = super().explain(batches, step)
        above = [None, *(row["documents"] for row in rows)]
        return [row | {"text": "+ " + row["text"]} if row["documents"] == other else row for row, other in zip(rows, above, strict=False)]


def hits(scores: Tensor, neighbours: Tensor) -> Tensor:
    """scores, neighbours (batch, batch) -> the number of sentences whose best candidate is a neighbour."""
    return neighbours.gather(1, scores.argmax(1, keepdim=True)).sum()


def has_neighbour(documents: np.ndarray) -> np.ndarray:
    """documents (steps, batch) of the sentences of steps -> whether each has a neighbour in its step, (steps * batch,)."""
    follows = documents[:, 1:] == documents[:, :-1]
    return (np.pad(follows, ((0, 0), (1, 0))) | np.pad(follows, ((0, 0), (0, 1)))).ravel()


class ValidationSentences(GroupedBatches):
    """All sentences of a text, in batches of the same size."""

    single: "ConsecutiveSentences"

    def collate(self, batches: Sequence[Batch]) -> Batch:
        tensors, counts = super().collate(batches)
        paired = has_neighbour(tensors["documents"].numpy()[None])
        sizes = self.single.byte_lengths[tensors["ids"].numpy()].sum(1)
        return Batch(tensors, counts | {"neighbour": float(paired.sum()), "bytes": float((sizes * paired).sum())})


class ConsecutiveSentences(sentences.SentenceBatches):
    """Documents in a random order, their sentences in sequence, so that a step has neighbours and, as in the paper, candidates of the same
    document that are hard to distinguish. A sentence is scored if a neighbour is in its step."""

    def order_epoch(self, rng: np.random.Generator) -> np.ndarray:
        _, firsts, sizes = np.unique(self.documents, return_index=True, return_counts=True)
        order = rng.permutation(len(firsts))
        return ranges(firsts[order], sizes[order])

    def draw(self, first: int, last: int) -> Chunk:
        selected = self.selected(first, last)
        ids, documents = self.read(selected), self.documents[selected]
        paired = has_neighbour(documents.reshape(-1, self.batch_size))
        counts = {"tokens": self.lengths[selected], "neighbour": paired, "bytes": self.bytes(*ids) * paired}
        flat = {"ids": ids, "lengths": (self.lengths[selected], None), "documents": (documents, None)}
        return Chunk.from_arrays(first, self.batch_size, flat, counts)


Objective = QuickThoughts
