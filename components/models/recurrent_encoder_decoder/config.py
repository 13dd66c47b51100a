"""Settings of the recurrent encoder-decoder."""

from typing import Literal

from pydantic import model_validator

from components.core.config import Dropout, Layers, Size
from components.models.common.config import ArchitectureBlock


class RecurrentEncoderDecoderArchitecture(ArchitectureBlock):
    """Bidirectional GRUs read the source, another GRU generates the target with attention to the source (Bahdanau et al. 2015).

    The paper's model is `num_layers: 1, hidden_size: 1000, embedding_size: 620, tie_word_embeddings: false`, except that each direction
    of its encoder is as wide as the decoder.
    """

    reads = "source_then_target"
    has_separate_layers = False
    has_sublayers = False

    name: Literal["recurrent_encoder_decoder"]
    num_layers: Layers = 1
    """Layers of encoder and of decoder; the first layer of the decoder attends to the source (Wu et al. 2016, section 3)."""
    hidden_size: Size
    """Width of the states. In the encoder each direction has half of it."""
    embedding_size: Size | None = None
    """Width of the token embedding; null: hidden_size. Methods that mix layers need the same width."""
    max_length: Size = 128
    """Longest source or target, in tokens."""
    attention: Literal["additive", "dot", "none"] = "additive"
    """The attention score: a tanh layer over both states (`additive`, the paper's), or their dot product (`dot`, Luong et al. 2015,
    section 3.1). `none`: no attention; the decoder gets the final states of both directions with each token (Cho et al. 2014)."""
    tie_word_embeddings: bool = True
    """Whether the output matrix is the token embedding."""
    dropout: Dropout = 0.1
    """Dropout of the token vectors, between layers and before the output, not from state to state (Zaremba et al. 2014)."""

    @property
    def sets_widths_apart(self) -> str:
        return "embedding_size" if self.embedding_size not in (None, self.hidden_size) else ""

    @model_validator(mode="after")
    def width_is_even(self):
        if self.hidden_size % 2:
            raise ValueError(f"hidden_size {self.hidden_size} is odd, and each direction of the encoder has half of it")
        return self


Architecture = RecurrentEncoderDecoderArchitecture
