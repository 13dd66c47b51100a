"""A linear layer on the mean of one frozen layer."""

from torch import Tensor, nn

from components import params
from components.core.errors import SesameError
from components.finetune.kinds import Kind
from components.finetune.methods.frozen import Frozen
from components.models.common.heads import MeanHead, OneLayer
from components.models.contract import LanguageModel


class LinearProbe(Frozen):
    """A linear layer on the mean over the tokens of one layer: what is linearly separable in that layer (Alain and Bengio 2017)."""

    normalises = True

    def build(self, model: LanguageModel, recipe: params.Recipe, kind: Kind, pair: bool) -> nn.Module:
        if not -model.num_layers - 1 <= recipe.layer <= model.num_layers:
            raise SesameError(f"layer {recipe.layer}: the model has 0 (embedding) to {model.num_layers}")
        self.layer = recipe.layer
        layer = OneLayer(self.normalises and recipe.normalise_layers)
        return MeanHead(layer, model.width, kind.outputs, recipe.dropout, pair, kind.per_token)

    def select_layers(self, layers: Tensor) -> Tensor:
        return layers[:, :, self.layer, None]


Method = LinearProbe
