"""Decomposable attention over mixed layers."""

from torch import nn

from components import params
from components.finetune.kinds import Kind
from components.finetune.methods.frozen import Frozen
from components.models.common.decomposable_attention import pair_head
from components.models.common.heads import ScalarMix
from components.models.contract import LanguageModel


class DecomposableAttention(Frozen):
    """Compares each token with its context in the other text, on frozen layers (Parikh et al. 2016)."""

    def build(self, model: LanguageModel, recipe: params.Recipe, kind: Kind, pair: bool) -> nn.Module:
        mix = ScalarMix(model.num_layers + 1, recipe.normalise_layers)
        return pair_head(mix, model.width, recipe.hidden_size, kind.outputs, recipe.dropout, pair, kind.per_token)


Method = DecomposableAttention
