"""Ways to adapt a pre-trained model: which weights learn, and what is put on top."""

import torch
from torch import Tensor, nn

from components import params
from components.models.heads import BiLSTMAttentionHead, PooledHead

Texts = list[tuple[Tensor, Tensor]]


class Full(nn.Module):
    """All weights are tuned; a linear layer on the pooled output. A pair is one input of two segments (Devlin et al. 2019)."""

    joined = True

    def __init__(self, model: nn.Module, recipe: params.Recipe, outputs: int, pair: bool):
        super().__init__()
        self.model = model
        self.head = PooledHead(model.width, outputs, recipe.dropout)

    def forward(self, texts: Texts, segment_ids: Tensor | None) -> Tensor:
        """One text (ids (batch, length), lengths (batch,)) -> (batch, outputs)."""
        [(ids, lengths)] = texts
        return self.head(self.model.pool(self.model.features(ids, lengths, segment_ids)[:, :, -1], lengths))


class Features(nn.Module):
    """Weights frozen, layers mixed, biLSTM + attention on top; the texts of a pair are read one by one (Peters et al. 2018)."""

    joined = False

    def __init__(self, model: nn.Module, recipe: params.Recipe, outputs: int, pair: bool):
        super().__init__()
        self.model = model.requires_grad_(False)
        self.head = BiLSTMAttentionHead(model.width, model.num_layers + 1, recipe.hidden_size, outputs, recipe.dropout, pair)

    def train(self, mode: bool = True) -> "Features":
        super().train(mode)
        self.model.eval()  # frozen features have no dropout
        return self

    def forward(self, texts: Texts, segment_ids: Tensor | None) -> Tensor:
        """One or two texts -> (batch, outputs)."""
        with torch.no_grad():
            layers = [self.model.features(ids, lengths) for ids, lengths in texts]
        return self.head(*[self.head.read(layer, lengths) for layer, (_, lengths) in zip(layers, texts, strict=True)])


METHODS = {"full": Full, "features": Features}
