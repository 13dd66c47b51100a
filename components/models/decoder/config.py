"""Settings of the decoder."""

from typing import Literal

from components.core.config import Positive
from components.models.common.config import Activation, TransformerArchitecture


class DecoderArchitecture(TransformerArchitecture):
    """GPT-2 (Radford et al. 2019): causal Transformer."""

    reads = "left_to_right"
    any_head_size = True

    name: Literal["decoder"]
    norm_first: bool = True
    """Norms before attention and feed-forward network (pre-LN, as published), or after the residual connection (post-LN)."""
    activation: Activation = "gelu_tanh"
    """The activation of the feed-forward network (GPT-2: gelu_tanh)."""
    layer_norm_eps: Positive = 1e-5
    """Added to the variance in a norm."""


Architecture = DecoderArchitecture
