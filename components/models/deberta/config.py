"""Settings of DeBERTa."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from components.core.config import Positive, Size
from components.models.common.config import Activation, TransformerArchitecture


class DebertaArchitecture(TransformerArchitecture):
    """DeBERTa (He et al. 2021): attention between content and relative positions in addition to that between contents."""

    reads = "both_sides"

    name: Literal["deberta"]
    positions: Literal["disentangled"] = "disentangled"
    """Attention between content and relative positions, with projections of both."""
    activation: Activation = "gelu"
    """The activation of the feed-forward network."""
    layer_norm_eps: Positive = 1e-7
    """Added to the variance in a norm."""
    max_relative_positions: Size | None = None
    """The distance from which on all distances are treated alike; null: max_length."""
    position_buckets: Annotated[int, Field(ge=4, le=2**20)] | None = None
    """Distances up to half of this number have a bucket each, farther ones logarithmic buckets (version 2 and 3: 256); null:
    one per distance."""
    shared_projections: bool = False
    """Whether positions go through the projections of queries and keys (version 2 and 3), or separate ones (version 1)."""
    norm_positions: bool = False
    """A norm over the vectors of relative positions (version 2 and 3)."""
    type_vocab_size: Annotated[int, Field(ge=0, le=2**20)] = 0
    """Kinds of segment; 0: none."""
    mask_decoder: bool = True
    """In pre-training the last layer is applied twice to the one below it, with absolute positions in the queries (section 3.2)."""

    @model_validator(mode="after")
    def buckets_are_useful(self):
        farthest = self.max_relative_positions or self.max_length
        if self.position_buckets and farthest - 1 <= self.position_buckets // 2:
            raise ValueError(
                f"position_buckets {self.position_buckets} distinguish {self.position_buckets // 2} distances, and there are {farthest}: "
                "set fewer buckets, or none"
            )
        return self

    @model_validator(mode="after")
    def layers_for_the_decoder(self):
        if self.mask_decoder and self.num_layers < 2:
            raise ValueError("mask_decoder needs two layers: set num_layers to 2 or more, or mask_decoder: false")
        return self


Architecture = DebertaArchitecture
