"""Settings of the encoder-decoder."""

from typing import Annotated, Literal

from pydantic import Field

from components.core.config import Added, Positive, Size
from components.models.common.config import TransformerArchitecture

CLS = 2  # in all tokenizers that are trained here

Activation = Literal["relu", "gelu", "gelu_tanh", "silu", "geglu", "geglu_tanh", "swiglu"]
"""Those of the Transformer, BART, mBART and Marian, and gated ones (Shazeer 2020); T5 v1.1 has `geglu_tanh`."""


class EncoderDecoderArchitecture(TransformerArchitecture):
    """The Transformer (Vaswani et al. 2017): an encoder reads the source, a decoder generates the target and attends to both.

    The defaults are BART (Lewis et al. 2020). The original Transformer is `positions: sinusoidal, activation: relu, embedding_norm:
    false, scale_embedding: true`; T5 (Raffel et al. 2020) is `positions: relative, norm: rms_norm, norm_first: true, activation:
    relu, biases: false, embedding_norm: false, layer_norm_eps: 1.0e-6`, and version 1.1 also `activation: geglu_tanh,
    tie_word_embeddings: false`.
    """

    reads = "source_then_target"
    any_head_size = True

    name: Literal["encoder_decoder"]
    decoder_layers: Size | None = None
    """Layers of the decoder; null: `num_layers`, as in the encoder."""
    head_size: Size | None = None
    """Width of a head; null: hidden_size / num_heads."""
    norm_first: bool = False
    """Norms before each sub-layer (pre-LN), and one more at the end of both stacks; or after the residual connection (post-LN)."""
    activation: Activation = "gelu"
    """The activation of the feed-forward network."""
    layer_norm_eps: Positive = 1e-5
    """Added to the variance in a norm."""
    embedding_norm: bool = True
    """A norm over the sum of token and position embedding, in both stacks (BART)."""
    scale_embedding: bool = False
    """Multiply the token embedding by sqrt(hidden_size) before the position is added (Vaswani et al. 2017, section 3.4)."""
    output_bias: bool = False
    """A bias of the logits (Marian, BART)."""
    decoder_start_token_id: Annotated[int, Field(ge=0)] = CLS
    """The first token of the target, which is not predicted: `[CLS]`. T5's is its padding token, BART's the end token."""
    forced_eos_token_id: Annotated[Annotated[int, Field(ge=0)] | None, Added(neutral=None)] = None
    """The last token of a generated text of the maximum length (BART, Marian); null: the likeliest token."""
    forced_bos_token_id: Annotated[Annotated[int, Field(ge=0)] | None, Added(neutral=None)] = None
    """The first token of a generated text (BART); null: the likeliest token."""
    task_states: Literal["encoder", "both"] = "encoder"
    """The states for fine-tuning: those of the encoder, pooled by their mean; or the same text goes through both stacks, and the
    decoder's last state is the pooled vector (Lewis et al. 2020, section 3.1)."""

    @property
    def inner_size(self) -> int:
        """Width of all heads together."""
        return self.num_heads * (self.head_size or self.hidden_size // self.num_heads)


Architecture = EncoderDecoderArchitecture
