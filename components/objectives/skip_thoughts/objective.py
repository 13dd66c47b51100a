"""Skip-thoughts (Kiros et al. 2015, section 2.1)."""

import numpy as np
import torch
from torch import Tensor, nn

from components.core.compute import full_precision
from components.models.contract import LanguageModel
from components.objectives.contract import Losses
from components.objectives.examples import sentences
from components.objectives.examples.batches import Chunk, Tensors, bucket_by_length
from components.objectives.scoring import IGNORED, score_tokens
from components.text.encode import Split
from components.text.tokenizer import PAD, Tokenizer


class Decoders(nn.Module):
    """Two GRUs whose inputs are a token and the sentence's vector (the paper's bias of each gate), with one softmax layer."""

    def __init__(self, embedded: int, width: int, size: int, vocab_size: int):
        super().__init__()
        self.grus = nn.ModuleDict({side: nn.GRU(embedded + width, size, batch_first=True) for side in ("next", "previous")})
        self.output = nn.Linear(size, vocab_size)

    def logits(self, hidden: Tensor) -> Tensor:
        """(..., size) -> (..., vocab_size)."""
        return self.output(hidden)


class SkipThoughts(sentences.SentenceObjective):
    """Predicts the next and the previous sentence from each sentence's vector; perplexity is of the next one."""

    main = "next"

    def batches(self, text: Split, batch_size: int, max_length: int, seed: int) -> "SentencesWithNeighbours":
        return SentencesWithNeighbours(self.tokenizer, text, batch_size, max_length, seed)

    def networks(self, model: LanguageModel) -> dict[str, nn.Module]:
        embedded = getattr(model, model.embedding)(torch.zeros(1, 1, dtype=torch.long, device=next(model.parameters()).device)).shape[2]
        self.decoders = Decoders(embedded, model.width, self.config.decoder_size or model.width, self.tokenizer.vocab_size)
        return {"decoders": self.decoders}

    def losses(self, model: LanguageModel, batch: Tensors, carry: None) -> tuple[Losses, None]:
        vectors, losses = sentences.sentence_vectors(model, batch), {}
        for side, gru in self.decoders.grus.items():
            ids, targets = batch[side][:, :-1], batch[side][:, 1:]
            embedded = getattr(model, model.embedding)(ids)
            inputs = torch.cat([embedded.to(vectors.dtype), vectors[:, None].expand(-1, ids.shape[1], -1)], 2)
            with full_precision(inputs):  # bf16 halves the speed of a GRU on a CPU
                hidden, _ = gru(inputs.float())
            losses[side] = score_tokens(self.decoders, hidden.flatten(0, 1), torch.where(targets == PAD, IGNORED, targets).flatten())
        return losses, None

    def explain(self, batches: "SentencesWithNeighbours", step: int) -> list[dict[str, str]]:
        """Show each sentence with the next and the previous one, empty if there is none."""
        tensors, rows = batches[step].tensors, super().explain(batches, step)
        sides = [[self.tokenizer.decode(ids) for ids in tensors[side].tolist()] for side in batches.present]
        return [row | {"target": f"next: {after} | previous: {before}"} for row, after, before in zip(rows, *sides, strict=True)]


class SentencesWithNeighbours(sentences.SentenceBatches):
    """Each sentence with the next and the previous one, in batches of a similar longest length of the three.

    A batch takes them from all documents, as in the authors' code (github.com/ryankiros/skip-thoughts,
    training/homogeneous_data.py, by the sentence's length): the targets of a sentence do not depend on the others, and padding
    takes as long as tokens.
    """

    def __init__(self, tokens: Tokenizer, text: Split, batch_size: int, max_length: int, seed: int):
        super().__init__(tokens, text, batch_size, max_length, seed)
        follows = self.documents[1:] == self.documents[:-1]
        self.present = {"next": np.append(follows, False), "previous": np.append(False, follows)}

    def _neighbours(self, selected: np.ndarray, side: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the neighbours of sentences on a side, the sentence itself if there is none, and whether there is one."""
        present = self.present[side][selected]
        return selected + present * (1 if side == "next" else -1), present

    def order_epoch(self, rng: np.random.Generator) -> np.ndarray:
        all_sentences = np.arange(len(self.sentences))
        longest = np.maximum.reduce([self.lengths, *(self.lengths[self._neighbours(all_sentences, side)[0]] for side in self.present)])
        return bucket_by_length(all_sentences, longest, self.batch_size, rng).ravel()

    def draw(self, first: int, last: int) -> Chunk:
        selected = self.selected(first, last)
        flat = {"ids": self.read(selected), "lengths": (self.lengths[selected], None)}
        counts = {"tokens": self.lengths[selected]}  # a sentence counts once per epoch, not again as a target
        for side in self.present:
            neighbours, present = self._neighbours(selected, side)
            flat[side] = self.read(neighbours, present)
            counts[side] = (self.lengths[neighbours] - 1) * present
        return Chunk.from_arrays(first, self.batch_size, flat, counts | {"bytes": self.bytes(*flat["next"])})


Objective = SkipThoughts
