"""Settings of the encoder."""

from typing import Literal

from pydantic import PositiveFloat

from components.block import Size
from components.models.common.block import Activation, TransformerArchitecture


class EncoderArchitecture(TransformerArchitecture):
    """BERT (Devlin et al. 2019): bidirectional Transformer with segments."""

    reads = "both_sides"

    name: Literal["encoder"]
    norm_first: bool = False
    """Norms before attention and feed-forward (pre-LN), or after the residual (post-LN, as published)."""
    activation: Activation = "gelu"
    layer_norm_eps: PositiveFloat = 1e-12
    type_vocab_size: Size = 2
    """Kinds of segment. A model of one kind (RoBERTa) reads both texts of a pair as that."""


Architecture = EncoderArchitecture
