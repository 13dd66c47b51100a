"""The base of the methods with frozen features."""

from dataclasses import replace

import torch
from lightning import Fabric
from torch import Tensor, nn

from components import params
from components.core.flops import flop_counter
from components.finetune.data import Encoded, Texts, batches, stacked
from components.finetune.kinds import Kind
from components.models.contract import LanguageModel
from components.text.tokenizer import Tokenizer

FEATURE_BATCH_SIZE = 256


class Frozen(nn.Module):
    """The weights are frozen; the layers' outputs are computed once and stored: 2 * layers * width bytes a token in bf16,
    unless a method keeps less (`stored`)."""

    def __init__(self, model: LanguageModel, tokens: Tokenizer, recipe: params.Recipe, kind: Kind, pair: bool):
        super().__init__()
        self.model, self.per_token = model.requires_grad_(False), kind.per_token
        self.head = self.build(model, recipe, kind, pair and not kind.joined)

    def build(self, model: LanguageModel, recipe: params.Recipe, kind: Kind, pair: bool) -> nn.Module:
        """Build the head: (batch, length, layers, width) of each text, and lengths, -> (batch, outputs) or (batch, length, outputs)."""
        raise NotImplementedError

    def select_layers(self, layers: Tensor) -> Tensor:
        """The layers that the head needs."""
        return layers

    def stored(self, layers: Tensor, lengths: Tensor) -> list[Tensor]:
        """Return what is kept of each text, all that the head reads: layers (batch, length, layers, width) -> (length, layers,
        width) each."""
        return [row[:length].clone() for row, length in zip(layers.bfloat16().cpu(), lengths.tolist(), strict=True)]

    @torch.no_grad()
    def inputs(self, data: Encoded, fabric: Fabric) -> Encoded:
        self.model.eval()  # frozen features have no dropout
        rows: list[list[Tensor]] = [[] for _ in range(len(data))]
        flops = 0
        for batch in batches(data, FEATURE_BATCH_SIZE, None):
            for ids, lengths in batch.texts:
                segments = batch.segments if len(batch.texts) == 1 else torch.zeros_like(ids)
                ids, lengths, segments = fabric.to_device((ids, lengths, segments))
                if not flops:
                    with flop_counter() as counter:
                        self.model.features(ids[:1, : lengths[0]], lengths[:1])
                    tokens = sum(len(text) for texts in data.texts for text in texts)
                    flops = counter.get_total_flops() / int(lengths[0]) * tokens
                with fabric.autocast():
                    layers = self.select_layers(self.model.features(ids, lengths, segments))
                owners = [i for i, size in zip(batch.index, batch.sizes, strict=True) for _ in range(size if data.choices else 1)]
                for i, stored in zip(owners, self.stored(layers, lengths), strict=True):
                    rows[i].append(stored)
        return replace(data, texts=rows, flops=int(flops))

    def forward(self, texts: Texts, segments: Tensor) -> Tensor:
        """One or two texts (features (batch, length, layers, width), lengths (batch,)) -> (batch, outputs) or (batch, length, outputs)."""
        layers, lengths = stacked(texts)
        return self.head(layers.float(), lengths, len(texts))
