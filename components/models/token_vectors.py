"""The token vectors of a model, without positions and layers: a baseline that has no context."""

import torch
from torch import Tensor

from components.models.common.heads import mean_over_tokens
from components.models.contract import LanguageModel


class TokenVectors(LanguageModel):
    """Maps a text to a bag of vectors, one per token, whatever its position."""

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
        """Return the mean over the tokens, (batch, width)."""
        return mean_over_tokens(hidden, lengths)

    def logits(self, hidden: Tensor) -> Tensor:
        raise NotImplementedError("vectors alone predict nothing")
