"""Word vectors as a model without layers: what a word means does not depend on the words beside it."""

import torch
from torch import Tensor, nn

from components.models.contract import LanguageModel
from components.models.static.config import StaticArchitecture
from components.text.tokenizer import SPECIALS, Tokenizer


class Static(LanguageModel):
    """Maps each word to its vector. Special tokens and unknown words have zeros, also while the others are tuned."""

    embeddings = frozenset({"token_embedding"})

    def __init__(self, config: StaticArchitecture, tokens: Tokenizer):
        super().__init__()
        self.width, self.num_layers, self.max_length = config.vector_size, 0, config.max_length
        self.token_embedding = nn.Embedding(tokens.vocab_size, config.vector_size)
        nn.init.normal_(self.token_embedding.weight, std=config.vector_std)

    def layers(self, ids: Tensor, lengths: Tensor, segment_ids: Tensor | None = None) -> list[Tensor]:
        """ids (batch, length) -> the vectors alone, [(batch, length, width)]."""
        return [self.token_embedding(ids) * (ids >= len(SPECIALS))[..., None]]

    def pool(self, hidden: Tensor, lengths: Tensor) -> Tensor:
        """(batch, length, width) -> (batch, width): the mean over the words that have a vector; zeros where none has."""
        inside = torch.arange(hidden.shape[1], device=hidden.device) < lengths[:, None]  # (batch, length)
        known = (hidden.detach().ne(0).any(2) & inside)[..., None]
        return (hidden * known).sum(1) / known.sum(1).clamp(min=1)

    def logits(self, hidden: Tensor) -> Tensor:
        raise NotImplementedError("word vectors predict no text")


Model = Static
