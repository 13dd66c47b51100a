"""All weights are trained."""

import torch
from lightning import Fabric
from torch import Tensor, nn

from components import params
from components.core.errors import SesameError
from components.finetune.data import Encoded, Texts, stacked
from components.finetune.kinds import Kind
from components.models.common.decomposable_attention import pair_head
from components.models.common.heads import BiLSTMAttentionHead, ConcatHead, MeanHead, PooledHead, ScalarMix, pair_features
from components.models.contract import LanguageModel
from components.text.tokenizer import Tokenizer


class Full(nn.Module):
    """All weights are trained; the head is linear on the pooled output or on every token (Devlin et al. 2019), or the recipe's."""

    def __init__(self, model: LanguageModel, tokens: Tokenizer, recipe: params.Recipe, kind: Kind, pair: bool):
        super().__init__()
        self.model, self.recipe, self.per_token = model, recipe, kind.per_token
        apart, width, outputs, dropout = pair and not kind.joined, model.width, kind.outputs, recipe.dropout
        if recipe.head == "bilstm":
            self.head = BiLSTMAttentionHead(nn.Flatten(2), width, recipe.hidden_size, outputs, dropout, apart, kind.per_token)
        elif recipe.head == "mix":
            self.head = MeanHead(ScalarMix(model.num_layers + 1, recipe.normalise_layers), width, outputs, dropout, apart, kind.per_token)
        elif recipe.head == "decomposable_attention":
            mix = ScalarMix(model.num_layers + 1, recipe.normalise_layers)
            self.head = pair_head(mix, width, recipe.hidden_size, outputs, dropout, apart, kind.per_token)
        elif recipe.head == "concat":
            if kind.per_token:
                raise SesameError("head concat makes one vector for a text, and this task needs one for each token; use another head")
            self.head = ConcatHead(width, recipe.hidden_size, outputs, dropout, apart)
        else:
            self.head = PooledHead((4 if apart else 1) * width, outputs, dropout)

    def inputs(self, data: Encoded, fabric: Fabric) -> Encoded:
        return data

    def freeze(self) -> None:
        """Freeze the model, except modules without pre-trained weights, as a pooler without next-sentence prediction."""
        self.model.requires_grad_(False)
        for name in self.model.absent:
            getattr(self.model, name).requires_grad_(True)

    def forward(self, texts: Texts, segments: Tensor) -> Tensor:
        """One or two texts (ids (batch, length), lengths (batch,)) -> (batch, outputs), or (batch, length, outputs)."""
        ids, lengths = stacked(texts)
        segments = segments if len(texts) == 1 else torch.zeros_like(ids)
        if self.recipe.head in ("mix", "decomposable_attention"):
            return self.head(self.model.features(ids, lengths, segments), lengths, len(texts))
        hidden = self.model.top(ids, lengths, segments)
        if self.recipe.head == "bilstm":
            return self.head(hidden[:, :, None], lengths, len(texts))
        if self.recipe.head == "concat":
            return self.head(hidden, self.model.pool(hidden, lengths), lengths, len(texts))
        return self.head(hidden if self.per_token else pair_features(self.model.pool(hidden, lengths), len(texts)))


Method = Full
