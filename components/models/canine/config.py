"""Settings of CANINE."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from components.core.config import Positive, Size
from components.models.common.config import Activation, TransformerArchitecture


class CanineArchitecture(TransformerArchitecture):
    """CANINE (Clark et al. 2022): reads characters, and goes deep over a shorter sequence. Its tokenizer is of `kind: characters`."""

    reads = "both_sides"
    of_characters = True

    name: Literal["canine"]
    positions: Literal["learned"] = "learned"
    """Canine has learned ones."""
    norm_first: Literal[False] = False
    """Canine normalises after each part of a layer."""
    activation: Activation = "gelu"
    """The activation of the feed-forward part."""
    layer_norm_eps: Positive = 1e-12
    """Added to the variance in a norm."""
    type_vocab_size: Size = 2
    """Kinds of segment: A and B of a pair."""
    num_hashes: Size = 8
    """Hash functions; each gives its share of a character's vector."""
    num_buckets: Annotated[int, Field(ge=2, le=2**24)] = 16_384
    """The number of buckets of each hash function."""
    local_width: Annotated[int, Field(ge=2, le=2**20)] = 128
    """Characters that attend to each other in the first layer; blocks of so many."""
    downsampling_rate: Annotated[int, Field(ge=1, le=64)] = 4
    """Characters that become one position of the deep layers, and the width of the convolution on the way back."""
    tie_word_embeddings: Literal[False] = False
    """There is no matrix of the vocabulary below to be tied to."""

    @model_validator(mode="after")
    def hashes_divide_width(self):
        if self.hidden_size % self.num_hashes:
            raise ValueError(f"hidden_size {self.hidden_size} is not divisible by num_hashes {self.num_hashes}")
        return self


Architecture = CanineArchitecture
