"""Mixed layers, each token beside what it attends to in the other text."""

from torch import nn

from components import params
from components.finetune.kinds import Kind
from components.finetune.methods.frozen import Frozen
from components.models.common.decomposable_attention import pair_head
from components.models.common.heads import ScalarMix
from components.models.contract import LanguageModel


class DecomposableAttention(Frozen):
    """The head of that name on frozen layers (Parikh et al. 2016)."""

    def build(self, model: LanguageModel, recipe: params.Recipe, kind: Kind, pair: bool) -> nn.Module:
        mix = ScalarMix(model.num_layers + 1, recipe.normalise_layers)
        return pair_head(mix, model.width, recipe.hidden_size, kind.outputs, recipe.dropout, pair, kind.per_token)


Method = DecomposableAttention
