"""The cosine similarity of two texts' vectors."""

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity

from components import params
from components.core.errors import SesameError
from components.finetune.kinds import Kind
from components.finetune.methods.sentence_probe import SentenceProbe
from components.models.common.heads import scores
from components.models.contract import LanguageModel


class Cosine(SentenceProbe):
    """The cosine of a pair's two vectors: similarity without training, as Conneau and Kiela (2018) evaluate STS. A trained linear function
    maps it to the task's range, which does not change a correlation, or to the classes."""

    def build(self, model: LanguageModel, recipe: params.Recipe, kind: Kind, pair: bool) -> nn.Module:
        if not pair:
            raise SesameError("method cosine compares two texts encoded apart: it needs a task of pairs, and pair: apart in the recipe")
        super().build(model, recipe, kind, pair)  # checks the layer
        return CosineHead(kind.outputs)


class CosineHead(nn.Module):
    """A linear function of the cosine for each output."""

    def __init__(self, outputs: int):
        super().__init__()
        self.output = nn.Linear(1, outputs)
        nn.init.ones_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def forward(self, layers: Tensor, lengths: Tensor, texts: int) -> Tensor:
        """Vectors (2 * batch, 1, 1, width) -> (batch, outputs)."""
        one, other = torch.flatten(layers, 1).chunk(2)
        return scores(self.output, cosine_similarity(one.float(), other.float())[:, None])


Method = Cosine
