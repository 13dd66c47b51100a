"""All weights tuned."""

from lightning import Fabric
from torch import Tensor, nn

from components import params
from components.finetune.data import Encoded, Texts
from components.finetune.kinds import Kind
from components.models.common.heads import BiLSTMAttentionHead, PooledHead
from components.models.contract import LanguageModel
from components.tokenizer import Tokenizer


class Full(nn.Module):
    """All weights are tuned; a linear layer on the pooled output, or on every token (Devlin et al. 2019), or the recipe's other head."""

    def __init__(self, model: LanguageModel, tokens: Tokenizer, recipe: params.Recipe, kind: Kind, pair: bool):
        super().__init__()
        self.model, self.recipe, self.per_token, self.joined = model, recipe, kind.per_token, True
        if recipe.head == "bilstm":
            self.head = BiLSTMAttentionHead(
                nn.Flatten(2), model.width, recipe.hidden_size, kind.outputs, recipe.dropout, False, kind.per_token
            )
        else:
            self.head = PooledHead(model.width, kind.outputs, recipe.dropout)

    def inputs(self, data: Encoded, fabric: Fabric) -> Encoded:
        return data

    def freeze(self) -> None:
        """All of the model but the parts that no pre-training has touched, as a pooler without next-sentence prediction."""
        self.model.requires_grad_(False)
        for part in self.model.absent:
            getattr(self.model, part).requires_grad_(True)

    def forward(self, texts: Texts, segments: Tensor) -> Tensor:
        """One text (ids (batch, length), lengths (batch,)) -> (batch, outputs), or (batch, length, outputs)."""
        [(ids, lengths)] = texts
        hidden = self.model.top(ids, lengths, segments)
        if self.recipe.head == "bilstm":
            return self.head(hidden[:, :, None], lengths, 1)
        return self.head(hidden if self.per_token else self.model.pool(hidden, lengths))


Method = Full
