"""Skip-thoughts (Kiros et al. 2015, section 2.1)."""

import numpy as np
import torch
from torch import Tensor, nn

from components.models.contract import LanguageModel
from components.objectives.contract import Losses
from components.objectives.examples import sentences
from components.objectives.examples.windows import Rows, Window, bucketed
from components.objectives.scoring import IGNORED, score_tokens
from components.text.encode import Split
from components.text.tokenizer import PAD, Tokenizer


class Decoders(nn.Module):
    """Two GRUs that read the sentence's vector beside each token (which is the paper's bias of each gate), under one softmax."""

    def __init__(self, embedded: int, width: int, size: int, vocab_size: int):
        super().__init__()
        self.grus = nn.ModuleDict({side: nn.GRU(embedded + width, size, batch_first=True) for side in ("next", "previous")})
        self.output = nn.Linear(size, vocab_size)

    def logits(self, hidden: Tensor) -> Tensor:
        """(..., size) -> (..., vocab_size)."""
        return self.output(hidden)


class SkipThoughts(sentences.SentenceObjective):
    """Writes the sentence after and the one before from each sentence's vector; perplexity is of the one after."""

    main = "next"

    def batches(self, text: Split, batch_size: int, max_length: int, seed: int) -> "WrittenSentences":
        return WrittenSentences(self.tokenizer, text, batch_size, max_length, seed)

    def networks(self, model: LanguageModel) -> dict[str, nn.Module]:
        embedded = getattr(model, model.embedding)(torch.zeros(1, 1, dtype=torch.long, device=next(model.parameters()).device)).shape[2]
        self.decoders = Decoders(embedded, model.width, self.config.decoder_size or model.width, self.tokenizer.vocab_size)
        return {"decoders": self.decoders}

    def losses(self, model: LanguageModel, rows: Rows, carry: None) -> tuple[Losses, None]:
        thoughts, parts = sentences.vectors(model, rows), {}
        for side, gru in self.decoders.grus.items():
            ids, wanted = rows[side][:, :-1], rows[side][:, 1:]
            embedded = getattr(model, model.embedding)(ids)
            read = torch.cat([embedded.to(thoughts.dtype), thoughts[:, None].expand(-1, ids.shape[1], -1)], 2)
            with torch.autocast("cuda" if read.is_cuda else "cpu", enabled=False):  # bf16 halves a GRU's speed on a CPU
                hidden, _ = gru(read.float())
            parts[side] = score_tokens(self.decoders, hidden.flatten(0, 1), torch.where(wanted == PAD, IGNORED, wanted).flatten())
        return parts, None

    def explain(self, batches: "WrittenSentences", step: int) -> list[dict[str, str]]:
        """With each sentence the one after it and the one before, which are written; nothing where there is none."""
        rows, shown = batches[step].rows, super().explain(batches, step)
        sides = [[self.tokenizer.decode(ids) for ids in rows[side].tolist()] for side in batches.there]
        return [row | {"target": f"next: {after} | previous: {before}"} for row, after, before in zip(shown, *sides, strict=True)]


class WrittenSentences(sentences.SentenceBatches):
    """Each sentence with the one after it and the one before. In a batch are such as have as long a longest of the three, out of all
    documents, as in the authors' code (github.com/ryankiros/skip-thoughts, training/homogeneous_data.py, by the sentence's own length):
    what is asked of a row does not depend on the others, and one that is padded takes as long as one that is full."""

    def __init__(self, tokens: Tokenizer, text: Split, batch_size: int, max_length: int, seed: int):
        super().__init__(tokens, text, batch_size, max_length, seed)
        follows = self.documents[1:] == self.documents[:-1]
        self.there = {"next": np.append(follows, False), "previous": np.append(False, follows)}

    def _beside(self, chosen: np.ndarray, side: str) -> tuple[np.ndarray, np.ndarray]:
        """The neighbours of some sentences on a side, each its own where there is none, and whether there is one."""
        there = self.there[side][chosen]
        return chosen + there * (1 if side == "next" else -1), there

    def ordered(self, rng: np.random.Generator) -> np.ndarray:
        every = np.arange(len(self.sentences))
        longest = np.maximum.reduce([self.lengths, *(self.lengths[self._beside(every, side)[0]] for side in self.there)])
        return bucketed(every, longest, self.batch_size, rng).ravel()

    def draw(self, first: int, last: int) -> Window:
        chosen = self.chosen(first, last)
        flat = {"ids": self.read(chosen), "lengths": (self.lengths[chosen], None)}
        counts = {"tokens": self.lengths[chosen]}  # each is read once an epoch, and written beside it
        for side in self.there:
            beside, there = self._beside(chosen, side)
            flat[side] = self.read(beside, there)
            counts[side] = (self.lengths[beside] - 1) * there
        return Window.laid_out(first, self.batch_size, flat, counts | {"bytes": self.bytes(*flat["next"])})


Objective = SkipThoughts
