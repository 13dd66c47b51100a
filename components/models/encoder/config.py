"""Settings of the encoder."""

from typing import Annotated, Literal

from pydantic import model_validator

from components.core.config import Added, Positive, Size
from components.models.common.config import Activation, TransformerArchitecture


class EncoderArchitecture(TransformerArchitecture):
    """BERT (Devlin et al. 2019): bidirectional Transformer with segments."""

    reads = "both_sides"
    any_head_size = True

    name: Literal["encoder"]
    norm_first: bool = False
    """Norms before attention and feed-forward network (pre-LN), or after the residual connection (post-LN, as published)."""
    activation: Activation = "gelu"
    """The activation of the feed-forward network (BERT: gelu)."""
    layer_norm_eps: Positive = 1e-12
    """Added to the variance in a norm (BERT: 1e-12)."""
    type_vocab_size: Size = 2
    """Kinds of segment. A model with one kind (RoBERTa) reads both texts of a pair as this kind."""
    embedding_size: Annotated[Size | None, Added(neutral=None)] = None
    """Width of the token vectors, projected to hidden_size (ALBERT, Lan et al. 2020, section 3.1); null: hidden_size."""
    shared_layers: Annotated[Literal["none", "all", "attention", "feed_forward"], Added(neutral="none")] = "none"
    """The weights that all layers of a group share (ALBERT)."""
    layer_groups: Annotated[Size, Added(neutral=1)] = 1
    """Number of groups of consecutive layers that share weights."""

    @property
    def shares_weights(self) -> bool:
        return self.shared_layers != "none"

    @model_validator(mode="after")
    def groups_divide_layers(self):
        if self.num_layers % self.layer_groups:
            raise ValueError(f"num_layers {self.num_layers} is not divisible by layer_groups {self.layer_groups}")
        if self.embedding_size and self.positions == "sinusoidal":
            raise ValueError("sinusoidal positions have hidden_size: leave embedding_size out, or take other positions")
        if self.layer_groups > 1 and self.shared_layers == "none":
            raise ValueError(f"layer_groups: {self.layer_groups} has no effect with shared_layers: none; leave one of them out")
        return self


Architecture = EncoderArchitecture
