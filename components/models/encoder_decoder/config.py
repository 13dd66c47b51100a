"""Settings of the encoder-decoder."""

from typing import Annotated, Literal

from pydantic import Field

from components.core.config import Added, Positive, Size
from components.models.common.config import TransformerArchitecture

CLS = 2  # of all tokenizers that are trained here

Activation = Literal["relu", "gelu", "gelu_tanh", "silu", "geglu", "geglu_tanh", "swiglu"]
"""The Transformer's, BART's, mBART's, Marian's; and gated ones, of which T5 v1.1 has `geglu_tanh` (Shazeer 2020)."""


class EncoderDecoderArchitecture(TransformerArchitecture):
    """The Transformer (Vaswani et al. 2017): an encoder reads the source, a decoder writes the target left to right and looks at both.

    As it stands BART (Lewis et al. 2020). The first Transformer is `positions: sinusoidal, activation: relu, embedding_norm: false,
    scale_embedding: true`; T5 (Raffel et al. 2020) `positions: relative, norm: rms_norm, norm_first: true, activation: relu,
    biases: false, embedding_norm: false, layer_norm_eps: 1.0e-6`, and its version 1.1 besides `activation: geglu_tanh,
    tie_word_embeddings: false`.
    """

    reads = "source_then_target"
    any_head_size = True

    name: Literal["encoder_decoder"]
    decoder_layers: Size | None = None
    """null: as many as the encoder's `num_layers`."""
    head_size: Size | None = None
    """Width of a head; null: hidden_size / num_heads."""
    norm_first: bool = False
    """Norms before each sub-layer (pre-LN), and one more at the end of both stacks; or after the residual (post-LN)."""
    activation: Activation = "gelu"
    """The activation of the feed-forward part."""
    layer_norm_eps: Positive = 1e-5
    """Added to the variance in a norm."""
    embedding_norm: bool = True
    """A norm over token and position together, in both stacks (BART)."""
    scale_embedding: bool = False
    """The token's vector times the root of hidden_size before the position is added (Vaswani et al. 2017, section 3.4)."""
    output_bias: bool = False
    """A bias on the logits (Marian, BART)."""
    decoder_start_token_id: Annotated[int, Field(ge=0)] = CLS
    """The first token of the target, which is not predicted: `[CLS]`. T5's is its padding, BART's the end of a text."""
    forced_eos_token_id: Annotated[Annotated[int, Field(ge=0)] | None, Added(neutral=None)] = None
    """The last token of a text that grows as long as it may, BART's and Marian's; null: the likeliest one, as everywhere."""
    task_states: Literal["encoder", "both"] = "encoder"
    """What a task reads: the encoder's states, their mean as one vector; or the same text goes through both stacks, and the decoder's last
    state is the vector (Lewis et al. 2020, section 3.1)."""

    @property
    def inner_size(self) -> int:
        """Of all heads together."""
        return self.num_heads * (self.head_size or self.hidden_size // self.num_heads)


Architecture = EncoderDecoderArchitecture
