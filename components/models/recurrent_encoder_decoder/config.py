"""Settings of the recurrent encoder-decoder."""

from typing import Literal

from pydantic import model_validator

from components.core.config import Dropout, Size
from components.models.common.config import ArchitectureBlock


class RecurrentEncoderDecoderArchitecture(ArchitectureBlock):
    """What the Transformer replaced: GRUs read the source from either side, another one writes the target and looks at all of the source
    before each token (Bahdanau et al. 2015).

    The paper's is `num_layers: 1, hidden_size: 1000, embedding_size: 620, tie_word_embeddings: false`, but that either direction of its
    encoder is as wide as the decoder.
    """

    reads = "source_then_target"
    has_layers_apart = False
    has_sublayers = False

    name: Literal["recurrent_encoder_decoder"]
    num_layers: Size = 1
    """The number of layers of encoder and decoder; the lowest of the decoder attends to the source (Wu et al. 2016,
    section 3)."""
    hidden_size: Size
    """Width of the states. In the encoder each direction has half of it."""
    embedding_size: Size | None = None
    """Width of the token embedding; null: hidden_size. Methods that mix layers need it of their width."""
    max_length: Size = 128
    """Longest source or target, in tokens."""
    attention: Literal["additive", "dot", "none"] = "additive"
    """How well a state of the source fits that of the decoder: a layer of tanh over both (`additive`, the paper's), or their product
    (`dot`, Luong et al. 2015, section 3.1). `none`: there is no looking, where either direction of the encoder ends is all that the decoder
    gets of the source, beside each token (Cho et al. 2014)."""
    tie_word_embeddings: bool = True
    """The output's matrix is the token embedding."""
    dropout: Dropout = 0.1
    """Dropout of the token vectors, between layers and below the output, not from state to state (Zaremba et al.
    2014)."""

    @model_validator(mode="after")
    def two_directions_share_the_width(self):
        if self.hidden_size % 2:
            raise ValueError(f"hidden_size {self.hidden_size} is odd, and each direction of the encoder has half of it")
        return self


Architecture = RecurrentEncoderDecoderArchitecture
