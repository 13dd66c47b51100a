"""Settings of XLNet."""

from typing import Literal

from components.core.config import Positive
from components.models.common.config import Activation, TransformerArchitecture


class XLNetArchitecture(TransformerArchitecture):
    """XLNet (Yang et al. 2019): a Transformer-XL (Dai et al. 2019) with two streams, of contents and of positions."""

    reads = "any_order"

    name: Literal["xlnet"]
    positions: Literal["transformer_xl"] = "transformer_xl"
    """Sinusoids of the distance, projected in each layer. Attention has another term for whether two tokens are in one segment."""
    activation: Activation = "gelu"
    """The activation of the feed-forward network."""
    layer_norm_eps: Positive = 1e-12
    """Added to the variance in a norm."""


Architecture = XLNetArchitecture
