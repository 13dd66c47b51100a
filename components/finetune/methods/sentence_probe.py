"""A linear layer on the vector of a text."""

from dataclasses import replace

import torch
from lightning import Fabric
from torch import Tensor

from components import params
from components.core.errors import SesameError
from components.finetune.data import Encoded
from components.finetune.kinds import Kind
from components.finetune.methods.linear_probe import LinearProbe
from components.models.contract import LanguageModel
from components.text.tokenizer import Tokenizer


class SentenceProbe(LinearProbe):
    """A linear layer on the model's pooled vector of each text, or on the mean over the tokens of a layer, both frozen: the usual
    evaluation of sentence encoders (Kiros et al. 2015, section 3)."""

    normalises = False

    def __init__(self, model: LanguageModel, tokens: Tokenizer, recipe: params.Recipe, kind: Kind, pair: bool):
        if kind.per_token:
            raise SesameError(f"method {recipe.method} has one vector for a text, and this task needs one for each token")
        self.mean = recipe.vector == "mean"
        if not self.mean and "pooler" in model.absent:
            raise SesameError(f"method {recipe.method}: the model's pooler was not pre-trained; set vector: mean")
        super().__init__(model, tokens, recipe, kind, pair)

    @torch.no_grad()
    def inputs(self, data: Encoded, fabric: Fabric) -> Encoded:
        """Each text becomes a single token, whose features are the text's vector."""
        features = super().inputs(data, fabric)
        vectors = [[self._vector(text.to(fabric.device))[None, None].bfloat16().cpu() for text in row] for row in features.texts]
        return replace(features, texts=vectors)

    def _vector(self, features: Tensor) -> Tensor:
        """(length, 1, width) -> (width,)."""
        hidden = features[None, :, 0].float()
        return hidden.mean(1)[0] if self.mean else self.model.pool(hidden, torch.tensor([hidden.shape[1]], device=hidden.device))[0]


Method = SentenceProbe
