"""Settings of DeBERTa."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from components.core.config import Positive, Size
from components.models.common.config import Activation, TransformerArchitecture


class DebertaArchitecture(TransformerArchitecture):
    """DeBERTa (He et al. 2021): content and relative position attend to each other apart from content to content."""

    reads = "both_sides"

    name: Literal["deberta"]
    positions: Literal["disentangled"] = "disentangled"
    """Content and relative position attend to each other, each by projections."""
    activation: Activation = "gelu"
    """The activation of the feed-forward part."""
    layer_norm_eps: Positive = 1e-7
    """Added to the variance in a norm."""
    max_relative_positions: Size | None = None
    """Distances from which on all are one; null: max_length."""
    position_buckets: Annotated[int, Field(ge=4, le=2**20)] | None = None
    """Distances up to half of them are told apart, farther ones by their logarithm (version 2 and 3: 256); null: all are."""
    shared_projections: bool = False
    """Positions go through the matrices of queries and keys (version 2 and 3), or through their own (version 1)."""
    norm_positions: bool = False
    """A norm over the vectors of relative positions (version 2 and 3)."""
    type_vocab_size: Annotated[int, Field(ge=0, le=2**20)] = 0
    """Kinds of segment; 0: none."""
    mask_decoder: bool = True
    """In pre-training the last layer is applied twice to the one below it, asked by absolute positions (section 3.2)."""

    @model_validator(mode="after")
    def something_beyond_the_buckets(self):
        farthest = self.max_relative_positions or self.max_length
        if self.position_buckets and farthest - 1 <= self.position_buckets // 2:
            raise ValueError(
                f"position_buckets {self.position_buckets} tell {self.position_buckets // 2} distances apart, and there are {farthest}: "
                "fewer buckets, or none"
            )
        return self

    @model_validator(mode="after")
    def layers_for_the_decoder(self):
        if self.mask_decoder and self.num_layers < 2:
            raise ValueError("mask_decoder needs two layers: set num_layers to 2 or more, or mask_decoder: false")
        return self


Architecture = DebertaArchitecture
