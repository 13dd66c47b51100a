"""Ways to adapt a pre-trained model: which weights learn, and what is put on top.

A method is a module whose parameters that require gradients are trained. `joined` says whether a pair is one input of two
segments or two inputs; `inputs` is what its `forward` wants in place of token ids, computed once.
"""

from dataclasses import replace

import torch
from lightning import Fabric
from torch import Tensor, nn

from components import params
from components.finetune.data import Encoded, batches
from components.flops import counted
from components.models.heads import BiLSTMAttentionHead, PooledHead

Texts = list[tuple[Tensor, Tensor]]
FEATURE_BATCH_SIZE = 256


class Full(nn.Module):
    """All weights are tuned; a linear layer on the pooled output (Devlin et al. 2019)."""

    joined = True

    def __init__(self, model: nn.Module, recipe: params.Recipe, outputs: int, pair: bool):
        super().__init__()
        self.model = model
        self.head = PooledHead(model.width, outputs, recipe.dropout)

    def inputs(self, data: Encoded, fabric: Fabric) -> Encoded:
        return data

    def forward(self, texts: Texts, segment_ids: Tensor | None) -> Tensor:
        """One text (ids (batch, length), lengths (batch,)) -> (batch, outputs)."""
        [(ids, lengths)] = texts
        return self.head(self.model.pool(self.model.features(ids, lengths, segment_ids)[:, :, -1], lengths))


class Features(nn.Module):
    """Weights frozen, layers mixed, biLSTM + attention on top; the texts of a pair are read one by one (Peters et al. 2018).

    The features are computed once and kept in bf16: 2 * layers * width bytes a token.
    """

    joined = False

    def __init__(self, model: nn.Module, recipe: params.Recipe, outputs: int, pair: bool):
        super().__init__()
        self.model = model.requires_grad_(False)
        self.head = BiLSTMAttentionHead(model.width, model.num_layers + 1, recipe.hidden_size, outputs, recipe.dropout, pair)

    @torch.no_grad()
    def inputs(self, data: Encoded, fabric: Fabric) -> Encoded:
        self.model.eval()  # frozen features have no dropout
        found: list[list[Tensor]] = [[] for _ in range(len(data))]
        flops = 0
        for texts, _, index in batches(data, FEATURE_BATCH_SIZE, None):
            for ids, lengths in texts:
                ids, lengths = fabric.to_device((ids, lengths))
                if not flops:
                    with counted() as counter:
                        self.model.features(ids[:1, : lengths[0]], lengths[:1])
                    flops = counter.get_total_flops() / int(lengths[0]) * sum(len(text) for row in data.texts for text in row)
                with fabric.autocast():
                    layers = self.model.features(ids, lengths).bfloat16().cpu()
                for i, row, length in zip(index.tolist(), layers, lengths.tolist(), strict=True):
                    found[i].append(row[:length].clone())
        return replace(data, texts=found, flops=int(flops))

    def forward(self, texts: Texts, segment_ids: Tensor | None) -> Tensor:
        """One or two texts (features (batch, length, layers, width), lengths (batch,)) -> (batch, outputs)."""
        return self.head(*[self.head.read(layers.float(), lengths) for layers, lengths in texts])


METHODS = {"full": Full, "features": Features}
