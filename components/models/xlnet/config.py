"""Settings of XLNet."""

from typing import Literal

from components.core.config import Positive
from components.models.common.config import Activation, TransformerArchitecture


class XLNetArchitecture(TransformerArchitecture):
    """XLNet (Yang et al. 2019): two streams over a Transformer-XL (Dai et al. 2019), one of what tokens are, one of where they stand."""

    reads = "any_order"

    name: Literal["xlnet"]
    positions: Literal["transformer_xl"] = "transformer_xl"
    """Sinusoids of the distance, through a matrix of each layer's own. Whether two tokens are of one segment is a term of attention,
    too."""
    activation: Activation = "gelu"
    """The activation of the feed-forward part."""
    layer_norm_eps: Positive = 1e-12
    """Added to the variance in a norm."""


Architecture = XLNetArchitecture
