"""Settings of the encoder of patches."""

from typing import Annotated, Literal

from pydantic import Field

from components.core.config import Positive, Size
from components.models.common.config import Activation, TransformerArchitecture


class PatchEncoderArchitecture(TransformerArchitecture):
    """The Vision Transformer (Dosovitskiy et al. 2021): reads the pixels of a patch as one position, so that attention costs
    what the number of patches costs. For one image per text; segments of a pair make no difference to it."""

    reads = "both_sides"

    name: Literal["patch_encoder"]
    patch_tokens: Annotated[int, Field(ge=2, le=2**16)]
    """Tokens of a patch. Of images with `patch: 2` a patch has 5: a blank, and 2 x 2 pixels."""
    embedding_size: Size = 32
    """Width of a pixel's vector. Those of a patch, one after another, are projected to hidden_size."""
    norm_first: bool = True
    """Norms before attention and feed-forward network (pre-LN, as published), or after the residual connection."""
    activation: Activation = "gelu"
    """The activation of the feed-forward network (ViT: gelu)."""
    layer_norm_eps: Positive = 1e-6
    """Added to the variance in a norm (ViT: 1e-6)."""


Architecture = PatchEncoderArchitecture
