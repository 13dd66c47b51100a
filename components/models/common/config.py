"""Settings that architectures share."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field, model_validator

from components.core.config import Added, Block, Dropout, Layers, RunOnly, Size

Reads = Literal["both_sides", "left_to_right", "each_direction", "any_order", "source_then_target", "recurrent", "no_context"]
"""The context of a token: both sides; the tokens before it; one model forward and one backward; the tokens before it in a random order;
the complete source and the target before it; the recurrent state of the tokens before it; or none."""


class ArchitectureBlock(Block):
    """Base class of the settings of all families."""

    reads: ClassVar[Reads]
    """The context of a token, by which objectives select the families that they train."""
    of_characters: ClassVar[bool] = False
    """Whether its tokens must be single characters."""
    has_separate_layers: ClassVar[bool] = True
    """Whether single layers can be recomputed in the backward pass, or sharded over devices."""
    has_sublayers: ClassVar[bool] = True
    """Whether there are projections for adapters and low-rank updates."""

    name: str
    num_layers: Layers
    """Layers above the token embedding (BERT base: 12)."""
    max_length: Size
    """Longest input, in tokens."""

    @property
    def shares_weights(self) -> bool:
        """Whether layers share weights."""
        return False

    @property
    def sets_widths_apart(self) -> str:
        """The setting by which layers differ in width, so that no method can mix them; empty where all are equally wide."""
        return ""


Activation = Literal["gelu", "gelu_tanh", "relu", "geglu", "swiglu"]
"""GELU by the error function, or its tanh approximation, with which GPT-2 and Google's BERT were trained. The last two are
gated and have a third matrix: with two thirds of the intermediate_size they have as many parameters as the others (Shazeer 2020)."""


SIZED = ("num_layers", "hidden_size", "num_heads", "intermediate_size")
"""The settings that `size` replaces."""
SIZES = {"tiny": (2, 128), "mini": (4, 256), "small": (4, 512), "medium": (8, 512), "base": (12, 768), "large": (24, 1024)}
"""Layers and width: BERT's two sizes (Devlin et al. 2019) and its miniatures (Turc et al. 2019); the width of a head is 64, that of the
feed-forward network four times the width."""


class TransformerArchitecture(ArchitectureBlock):
    """Settings that Transformers share, with the choices that Narang et al. (2021) compared."""

    model_config = ConfigDict(json_schema_extra=lambda schema: schema.update(required=["name"]))  # `size` sets the others
    any_head_size: ClassVar[bool] = False
    """Whether the heads together may have another width than the model."""

    size: Annotated[Literal[tuple(SIZES)] | Annotated[int, Field(ge=1, le=256)] | None, RunOnly()] = None
    """Sets num_layers, hidden_size, num_heads and intermediate_size: BERT's sizes, `tiny` to `large`; or a number of layers, with
    a head of 64 for each and four times the width as inner width. The default of max_length is then 512. The resulting
    settings are stored, not the name."""
    hidden_size: Size
    """Width of a token's vector in all layers (BERT base: 768)."""
    num_heads: Size
    """Attention heads of a layer; they divide hidden_size (BERT base: 12 of 64)."""
    intermediate_size: Size
    """Inner width of the feed-forward network, usually four times hidden_size (BERT base: 3072)."""
    head_size: Annotated[Size | None, Added(neutral=None)] = None
    """Width of a head; null: hidden_size / num_heads. Set in models whose heads were pruned."""
    max_length: Annotated[int, Field(ge=8, le=2**40)]
    """Positions; also the longest training example, in tokens."""
    dropout: Dropout = 0.1
    """Dropout probability (BERT: 0.1)."""
    positions: Literal["learned", "sinusoidal", "rotary", "relative", "alibi"] = "learned"
    """`sinusoidal` (Vaswani et al. 2017); `rotary` (Su et al. 2021); `relative`: a bias per head and distance, one table for all
    layers (T5, Raffel et al. 2020); `alibi`: a bias that decreases linearly with the distance, with a slope per head (Press et
    al. 2022)."""
    norm: Literal["layer_norm", "rms_norm"] = "layer_norm"
    """`rms_norm`: without mean and bias (Zhang and Sennrich 2019)."""
    biases: Annotated[bool, Added(neutral=True)] = True
    """Whether the linear layers and norms of the layers have biases."""
    tie_word_embeddings: bool = True
    """Whether the output matrix is the token embedding."""

    @property
    def heads_size(self) -> int:
        """Width of all heads together."""
        return self.num_heads * self.head_size if self.head_size else self.hidden_size

    @model_validator(mode="before")
    @classmethod
    def sizes_by_name(cls, given: Any) -> Any:
        size = given.get("size") if isinstance(given, dict) else None
        if size is None:
            return given
        if size not in SIZES and (type(size) is not int or not 1 <= size <= 256):
            names = ", ".join(SIZES)
            raise ValueError(f"size {size!r} is no size; take one of {names}, or a number of layers from 1 to 256")
        layers, width = (size, 64 * size) if type(size) is int else SIZES[size]
        settings = dict(zip(SIZED, (layers, width, width // 64, 4 * width), strict=True))
        for key, value in settings.items():
            if given.get(key, value) != value:
                raise ValueError(f"size {size} means {key} {value}, and {key}: {given[key]} contradicts it; leave one of them out")
        return {"max_length": 512} | {key: value for key, value in given.items() if key != "size"} | settings

    @model_validator(mode="after")
    def heads_divide_width(self):
        if self.head_size and not self.any_head_size:
            raise ValueError(f"head_size is for other architectures than {self.name}: leave it out")
        if self.head_size and self.positions == "rotary":
            raise ValueError("rotary positions need heads of hidden_size / num_heads: leave head_size out, or take other positions")
        if not self.head_size and self.hidden_size % self.num_heads:
            raise ValueError(f"hidden_size {self.hidden_size} is not divisible by num_heads {self.num_heads}")
        if self.positions == "rotary" and self.hidden_size // self.num_heads % 2:
            raise ValueError(f"rotary positions need an even hidden_size / num_heads, and it is {self.hidden_size // self.num_heads}")
        return self
