"""A linear layer on the vector of a text."""

from torch import Tensor

from components import params
from components.core.errors import SesameError
from components.finetune.kinds import Kind
from components.finetune.methods.linear_probe import LinearProbe
from components.models.common.heads import mean_over_tokens
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

    def stored(self, layers: Tensor, lengths: Tensor) -> list[Tensor]:
        """Return the vector of each text as that of a single token, (1, 1, width). In 32 bits: texts whose vectors are nearly
        the same would have the same one in bf16, and a rank correlation of their cosines would be too low."""
        hidden = layers[:, :, 0].float()
        vectors = mean_over_tokens(hidden, lengths) if self.mean else self.model.pool(hidden, lengths)
        return list(vectors[:, None, None].cpu())


Method = SentenceProbe
