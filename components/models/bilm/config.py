"""Settings of ELMo's language models."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from components.core.config import Dropout, Layers, Size
from components.models.common.config import ArchitectureBlock


class BiLMArchitecture(ArchitectureBlock):
    """ELMo (Peters et al. 2018): two separate LSTM language models over character convolutions."""

    reads = "each_direction"
    has_sublayers = False

    name: Literal["bilm"]
    num_layers: Layers = 2
    """LSTM layers of each direction."""
    hidden_size: Size
    """Width of each LSTM's cell (4096 in the paper)."""
    projection_size: Size
    """Width of the token vector and of each LSTM's output (512 in the paper)."""
    char_embedding_size: Size = 16
    """Width of a byte's vector (Peters et al. 2018: 16)."""
    char_filters: Annotated[list[tuple[Annotated[int, Field(gt=0, le=1000)], Size]], Field(min_length=1)] = [
        (1, 32), (2, 32), (3, 64), (4, 64),
    ]  # fmt: skip
    """(width in bytes, number of filters) of each character convolution."""
    num_highway: Annotated[int, Field(ge=0, le=100)] = 1
    """Highway layers above the character convolutions (Srivastava et al. 2015)."""
    max_length: Size = 512
    """Longest input read as features, in tokens."""
    dropout: Dropout = 0.1
    """Dropout probability (Peters et al. 2018: 0.1)."""

    @model_validator(mode="after")
    def projection_is_smaller(self):
        if self.projection_size >= self.hidden_size:
            raise ValueError(f"projection_size {self.projection_size} must be smaller than hidden_size {self.hidden_size}")
        return self


Architecture = BiLMArchitecture
