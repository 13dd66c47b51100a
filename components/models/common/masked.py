"""What BERT and its kin have above their layers (Devlin et al. 2019)."""

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from components.models.common.config import TransformerArchitecture
from components.models.common.transformer import norm, plain, sublayers
from components.models.contract import LanguageModel


class MaskedLanguageModel(LanguageModel):
    """Heads for masked tokens and for a question about a pair, a pooler on `[CLS]`; above `blocks` and beside a `token_embedding`."""

    def add_heads(self, config: TransformerArchitecture, vocab_size: int, below: int) -> None:
        """`below`: the width of the token embedding, whose matrix is the output's where they are tied."""
        size = config.hidden_size
        self.pooler = nn.Sequential(nn.Linear(size, size), nn.Tanh())
        self.head_transform = nn.Sequential(nn.Linear(size, below), plain(config.activation), norm(config, below))
        self.head_bias = nn.Parameter(torch.zeros(vocab_size))
        self.next_sentence = nn.Linear(size, 2)
        self.output_embedding = None if config.tie_word_embeddings else nn.Embedding(vocab_size, below)

    def forward(self, ids: Tensor, lengths: Tensor, segment_ids: Tensor | None = None) -> Tensor:
        """-> (batch, length, hidden)."""
        return self.layers(ids, lengths, segment_ids)[-1]

    def logits(self, hidden: Tensor) -> Tensor:
        """(..., hidden) -> (..., vocab_size): dense, activation, norm, then the output's matrix with its own bias."""
        return linear(self.head_transform(hidden), (self.output_embedding or self.token_embedding).weight, self.head_bias)

    def pool(self, hidden: Tensor, lengths: Tensor) -> Tensor:
        """(batch, length, hidden) -> (batch, hidden): dense and tanh on `[CLS]`."""
        return self.pooler(hidden[:, 0])

    def sublayers(self) -> list[tuple[nn.Module, str]]:
        return sublayers(self.blocks)
