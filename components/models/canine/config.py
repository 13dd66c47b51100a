"""Settings of CANINE."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from components.core.config import Positive, Size
from components.models.common.config import Activation, TransformerArchitecture


class CanineArchitecture(TransformerArchitecture):
    """CANINE (Clark et al. 2022): reads characters, with deep layers over a downsampled sequence. Its tokenizer has `kind: characters`."""

    reads = "both_sides"
    of_characters = True

    name: Literal["canine"]
    positions: Literal["learned"] = "learned"
    """CANINE has learned positions."""
    norm_first: Literal[False] = False
    """CANINE has post-LN layers."""
    activation: Activation = "gelu"
    """The activation of the feed-forward network."""
    layer_norm_eps: Positive = 1e-12
    """Added to the variance in a norm."""
    type_vocab_size: Size = 2
    """Kinds of segment: A and B of a pair."""
    num_hashes: Size = 8
    """Hash functions; each determines an equal share of a character's vector."""
    num_buckets: Annotated[int, Field(ge=2, le=2**24)] = 16_384
    """The number of buckets of each hash function."""
    local_width: Annotated[int, Field(ge=2, le=2**20)] = 128
    """Size of the blocks within which characters attend to each other in the first layer."""
    downsampling_rate: Annotated[int, Field(ge=1, le=64)] = 4
    """Characters per position of the deep layers, and the width of the upsampling convolution."""
    tie_word_embeddings: Literal[False] = False
    """The embedding has no matrix of the vocabulary to be tied to."""

    @model_validator(mode="after")
    def hashes_divide_width(self):
        if self.hidden_size % self.num_hashes:
            raise ValueError(f"hidden_size {self.hidden_size} is not divisible by num_hashes {self.num_hashes}")
        return self


Architecture = CanineArchitecture
