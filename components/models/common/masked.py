"""The heads of BERT and similar models (Devlin et al. 2019)."""

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from components.models.common.config import TransformerArchitecture
from components.models.common.transformer import norm, sublayers, ungated
from components.models.contract import LanguageModel


class MaskedLanguageModel(LanguageModel):
    """Heads for masked tokens and for a question about a pair, and a pooler on `[CLS]`, for models with `blocks` and `token_embedding`."""

    def add_heads(self, config: TransformerArchitecture, vocab_size: int, embedding_size: int) -> None:
        """`embedding_size` is the width of the token embedding, which is the output matrix if they are tied."""
        size = config.hidden_size
        self.pooler = nn.Sequential(nn.Linear(size, size), nn.Tanh())
        activation = ungated(config.activation)
        self.head_transform = nn.Sequential(nn.Linear(size, embedding_size), activation, norm(config, embedding_size))
        self.head_bias = nn.Parameter(torch.zeros(vocab_size))
        self.next_sentence = nn.Linear(size, 2)
        self.output_embedding = None if config.tie_word_embeddings else nn.Embedding(vocab_size, embedding_size)

    def forward(self, ids: Tensor, lengths: Tensor, segment_ids: Tensor | None = None) -> Tensor:
        """-> (batch, length, hidden)."""
        return self.layers(ids, lengths, segment_ids)[-1]

    def logits(self, hidden: Tensor) -> Tensor:
        """(..., hidden) -> (..., vocab_size): dense, activation, norm, then the output matrix with a bias."""
        return linear(self.head_transform(hidden), (self.output_embedding or self.token_embedding).weight, self.head_bias)

    def pool(self, hidden: Tensor, lengths: Tensor) -> Tensor:
        """(batch, length, hidden) -> (batch, hidden): dense and tanh on `[CLS]`."""
        return self.pooler(hidden[:, 0])

    def sublayers(self) -> list[tuple[nn.Module, str]]:
        return sublayers(self.blocks)
