"""A linear layer on the mean of mixed layers."""

from torch import nn

from components import params
from components.finetune.kinds import Kind
from components.finetune.methods.frozen import Frozen
from components.models.common.heads import MeanHead, ScalarMix
from components.models.contract import LanguageModel


class Mix(Frozen):
    """A linear layer on the mean over the tokens of mixed layers (Peters et al. 2018, equation 1)."""

    def build(self, model: LanguageModel, recipe: params.Recipe, kind: Kind, pair: bool) -> nn.Module:
        mix = ScalarMix(model.num_layers + 1, recipe.normalise_layers)
        return MeanHead(mix, model.width, kind.outputs, recipe.dropout, pair, kind.per_token)


Method = Mix
