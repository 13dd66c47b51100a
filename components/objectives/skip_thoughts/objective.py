"""Skip-thoughts (Kiros et al. 2015, section 2.1)."""

import numpy as np
import torch
from torch import Tensor, nn

from components.encode import Split
from components.models.contract import LanguageModel
from components.objectives.contract import Losses
from components.objectives.contract import Objective as Contract
from components.objectives.examples import sentences
from components.objectives.examples.windows import Rows
from components.objectives.scoring import IGNORED, score_tokens
from components.objectives.skip_thoughts import block
from components.tokenizer import Tokenizer


class Decoders(nn.Module):
    """Two GRUs that read the sentence's vector beside each token (which is the paper's bias of each gate), under one softmax."""

    def __init__(self, embedded: int, width: int, size: int, vocab_size: int):
        super().__init__()
        self.grus = nn.ModuleDict({side: nn.GRU(embedded + width, size, batch_first=True) for side in ("next", "previous")})
        self.output = nn.Linear(size, vocab_size)

    def logits(self, hidden: Tensor) -> Tensor:
        """(..., size) -> (..., vocab_size)."""
        return self.output(hidden)


class SkipThoughts(Contract):
    """Writes the sentence after and the one before from each sentence's vector; perplexity is of the one after."""

    main = "next"

    def __init__(self, config: block.SkipThoughts, tokens: Tokenizer):
        self.config, self.tokenizer = config, tokens

    def batches(self, text: Split, batch_size: int, max_length: int, seed: int) -> "WrittenSentences":
        return WrittenSentences(self.tokenizer, text, batch_size, max_length, seed)

    def networks(self, model: LanguageModel) -> dict[str, nn.Module]:
        embedded = getattr(model, model.embedding)(torch.zeros(1, 1, dtype=torch.long, device=next(model.parameters()).device)).shape[2]
        self.decoders = Decoders(embedded, model.width, self.config.decoder_size or model.width, self.tokenizer.vocab_size)
        return {"decoders": self.decoders}

    def untrained(self, model: LanguageModel) -> list[str]:
        return sentences.unreached(model)

    def losses(self, model: LanguageModel, rows: Rows, carry: None) -> tuple[Losses, None]:
        thoughts, beside = sentences.vectors(model, rows), sentences.neighbours(rows)
        embedded = getattr(model, model.embedding)(rows["ids"][:, :-1])
        inside = torch.arange(rows["ids"].shape[1], device=thoughts.device) < rows["lengths"][:, None]
        wanted = torch.where(inside, rows["ids"], IGNORED)[:, 1:]
        parts = {}
        for side, of, target in (("next", slice(None, -1), slice(1, None)), ("previous", slice(1, None), slice(None, -1))):
            given = thoughts[of, None].expand(-1, embedded.shape[1], -1)
            read = torch.cat([embedded[target].to(given.dtype), given], 2)
            with torch.autocast("cuda" if read.is_cuda else "cpu", enabled=False):  # bf16 halves a GRU's speed on a CPU
                hidden, _ = self.decoders.grus[side](read.float())
            labels = torch.where(beside[:, None], wanted[target], IGNORED)
            parts[side] = score_tokens(self.decoders, hidden.flatten(0, 1), labels.flatten())
        return parts, None

    def explain(self, batches: "WrittenSentences", step: int) -> list[dict[str, str]]:
        return sentences.explained(batches, step, self.tokenizer)

    def samples(self, model: LanguageModel, text: Split, prompts: list[str]) -> list[dict[str, str]]:
        return sentences.nearest(model, self.tokenizer, text, prompts)


class WrittenSentences(sentences.SentenceBatches):
    """A sentence is written from the vector of the one before it, and from that of the one after it."""

    def counts(self, lengths: np.ndarray, sizes: np.ndarray, follows: np.ndarray, precedes: np.ndarray) -> dict[str, np.ndarray]:
        return {"next": (lengths - 1) * follows, "previous": (lengths - 1) * precedes, "bytes": sizes * follows}


Objective = SkipThoughts
