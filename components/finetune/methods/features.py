"""A biLSTM over mixed layers, as in ELMo."""

from torch import nn

from components import params
from components.finetune.kinds import Kind
from components.finetune.methods.frozen import Frozen
from components.models.common.heads import BiLSTMAttentionHead, ScalarMix
from components.models.contract import LanguageModel


class Features(Frozen):
    """Layers mixed, biLSTM and attention on top (Peters et al. 2018; Wang et al. 2018)."""

    def build(self, model: LanguageModel, recipe: params.Recipe, kind: Kind, pair: bool) -> nn.Module:
        mix = ScalarMix(model.num_layers + 1, recipe.normalise_layers)
        return BiLSTMAttentionHead(mix, model.width, recipe.hidden_size, kind.outputs, recipe.dropout, pair, kind.per_token)


Method = Features
