"""A model's own token vectors, without positions and layers: what the rest of it adds is what the context brings."""

import torch
from torch import Tensor

from components.models.common.heads import mean_over_tokens
from components.models.contract import LanguageModel


class TokenVectors(LanguageModel):
    """Reads a text as a bag of vectors, one a token, wherever it stands."""

    embeddings = frozenset({"vectors"})
    embedding = "vectors"

    def __init__(self, model: LanguageModel):
        super().__init__()
        self.vectors = getattr(model, model.embedding)
        with torch.no_grad():
            self.width = self.vectors(torch.zeros(1, 1, dtype=torch.long)).shape[-1]
        self.num_layers, self.max_length = 0, model.max_length

    def layers(self, ids: Tensor, lengths: Tensor, segment_ids: Tensor | None = None) -> list[Tensor]:
        return [self.vectors(ids)]

    def pool(self, hidden: Tensor, lengths: Tensor) -> Tensor:
        """(batch, length, width) -> (batch, width): the mean over the tokens."""
        return mean_over_tokens(hidden, lengths)

    def logits(self, hidden: Tensor) -> Tensor:
        raise NotImplementedError("vectors alone predict nothing")
