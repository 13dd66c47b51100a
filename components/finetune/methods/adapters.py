"""Bottlenecks in a frozen model."""

from torch import Tensor, nn

from components import params
from components.core.errors import SesameError
from components.finetune.kinds import Kind
from components.finetune.methods.full import Full
from components.models.contract import LanguageModel
from components.text.tokenizer import Tokenizer


class Adapter(nn.Module):
    """A bottleneck with a residual, next to the identity at first (Houlsby et al. 2019, section 2.1)."""

    def __init__(self, width: int, bottleneck: int):
        super().__init__()
        self.down, self.up = nn.Linear(width, bottleneck), nn.Linear(bottleneck, width)
        for part in (self.down, self.up):
            nn.init.trunc_normal_(part.weight, std=1e-3)
            nn.init.zeros_(part.bias)

    def forward(self, x: Tensor) -> Tensor:
        """(..., width) -> the same shape."""
        return x + self.up(nn.functional.gelu(self.down(x)))


class Adapters(Full):
    """Bottlenecks after attention and feed-forward, the layer norms and the head (Houlsby et al. 2019)."""

    def __init__(self, model: LanguageModel, tokens: Tokenizer, recipe: params.Recipe, kind: Kind, pair: bool):
        super().__init__(model, tokens, recipe, kind, pair)
        self.freeze()
        if not model.sublayers():
            raise SesameError(f"method adapters goes into a Transformer's blocks, and {type(model).__name__} has none; use another one")
        for owner, name in model.sublayers():
            setattr(owner, name, nn.Sequential(getattr(owner, name), Adapter(model.width, recipe.bottleneck)))
        for part in model.modules():
            if isinstance(part, nn.LayerNorm | nn.RMSNorm | Adapter):
                part.requires_grad_(True)


Method = Adapters
