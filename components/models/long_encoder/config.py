"""Settings of the encoder for long texts."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from components.core.config import Positive, Size
from components.models.common.config import Activation, TransformerArchitecture

Kind = Literal["full", "windows", "hashes", "linear"]


class LongEncoderArchitecture(TransformerArchitecture):
    """BERT with attention whose cost grows with the length of a text, not with its square."""

    reads = "both_sides"

    name: Literal["long_encoder"]
    attention: Kind = "windows"
    """`windows`: to the neighbours of a token (Longformer, Beltagy et al. 2020); `hashes`: to tokens with similar
    vectors (Reformer, Kitaev et al. 2020); `linear`: a product of feature maps in place of the softmax (Katharopoulos
    et al. 2020); `full`: to all tokens, as in BERT, to compare."""
    window: Size = 64
    """Of `windows`: a token attends to so many tokens on each side (Longformer: 256)."""
    global_tokens: Annotated[int, Field(ge=0, le=2**20)] = 1
    """Of `windows`: the first tokens of a text attend to all tokens, and all attend to them; 1: `[CLS]`."""
    chunk: Size = 64
    """Of `hashes`: tokens are sorted by their hash and cut into chunks of this size; a token attends to its chunk and
    the one before it (Reformer: 64)."""
    rounds: Annotated[int, Field(ge=1, le=64)] = 2
    """Of `hashes`: hash functions, each with its own sorting (Reformer: up to 8)."""
    positions: Literal["learned", "sinusoidal", "rotary"] = "learned"
    """`relative` and `alibi` need a bias for each pair of tokens, which is quadratic in the length."""
    norm_first: bool = False
    """Norms before attention and feed-forward network (pre-LN), or after the residual connection (post-LN, as BERT)."""
    activation: Activation = "gelu"
    """The activation of the feed-forward network."""
    layer_norm_eps: Positive = 1e-12
    """Added to the variance in a norm."""
    type_vocab_size: Size = 2
    """Kinds of segment: A and B of a pair."""
    embedding_size: ClassVar[None] = None
    shared_layers: ClassVar[str] = "none"
    layer_groups: ClassVar[int] = 1

    @model_validator(mode="after")
    def of_its_attention(self):
        for attention, names in (("windows", ["window", "global_tokens"]), ("hashes", ["chunk", "rounds"])):
            if self.attention != attention:
                self.refuse_idle(names, f"it is of attention: {attention}, and here that is {self.attention}")
        return self


Architecture = LongEncoderArchitecture
