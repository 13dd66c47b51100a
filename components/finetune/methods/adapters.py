"""Adapters in a frozen model."""

from torch import Tensor, nn

from components import params
from components.core.errors import SesameError
from components.finetune.kinds import Kind
from components.finetune.methods.full import Full
from components.models.contract import LanguageModel
from components.text.tokenizer import Tokenizer


class Adapter(nn.Module):
    """A bottleneck with a residual connection, initialised near the identity (Houlsby et al. 2019, section 2.1)."""

    def __init__(self, width: int, bottleneck: int):
        super().__init__()
        self.down, self.up = nn.Linear(width, bottleneck), nn.Linear(bottleneck, width)
        for linear in (self.down, self.up):
            nn.init.trunc_normal_(linear.weight, std=1e-3)
            nn.init.zeros_(linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        """(..., width) -> the same shape."""
        return x + self.up(nn.functional.gelu(self.down(x)))


class Adapters(Full):
    """Trains adapters after attention and feed-forward, the layer norms and the head (Houlsby et al. 2019)."""

    def __init__(self, model: LanguageModel, tokens: Tokenizer, recipe: params.Recipe, kind: Kind, pair: bool):
        super().__init__(model, tokens, recipe, kind, pair)
        self.freeze()
        if not model.sublayers():
            raise SesameError(f"method adapters needs a Transformer, which {type(model).__name__} is not; use another method")
        for owner, name in model.sublayers():
            setattr(owner, name, nn.Sequential(getattr(owner, name), Adapter(model.width, recipe.bottleneck)))
        for module in model.modules():
            if isinstance(module, nn.LayerNorm | nn.RMSNorm | Adapter):
                module.requires_grad_(True)


Method = Adapters
