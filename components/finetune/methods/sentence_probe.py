"""A text's one vector, as it is."""

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
    """The model's own vector of each text, or the mean over the tokens of a layer, frozen under a linear layer (Kiros et al. 2015, section
    3: how sentence encoders are judged)."""

    normalises = False  # a text's vector is judged as it is

    def __init__(self, model: LanguageModel, tokens: Tokenizer, recipe: params.Recipe, kind: Kind, pair: bool):
        if kind.per_token:
            raise SesameError(f"method {recipe.method} makes one vector of a text, and this task asks for one of each token")
        self.mean = recipe.vector == "mean"
        if not self.mean and "pooler" in model.absent:
            raise SesameError(f"method {recipe.method}: no training has touched the pooler that makes a text's vector; set vector: mean")
        super().__init__(model, tokens, recipe, kind, pair)

    @torch.no_grad()
    def inputs(self, data: Encoded, fabric: Fabric) -> Encoded:
        """A text is one token, whose features are its vector."""
        read = super().inputs(data, fabric)
        return replace(
            read, texts=[[self._vector(text.to(fabric.device))[None, None].bfloat16().cpu() for text in row] for row in read.texts]
        )

    def _vector(self, features: Tensor) -> Tensor:
        """(length, 1, width) -> (width,)."""
        hidden = features[None, :, 0].float()
        return hidden.mean(1)[0] if self.mean else self.model.pool(hidden, torch.tensor([hidden.shape[1]], device=hidden.device))[0]


Method = SentenceProbe
