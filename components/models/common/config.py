"""Settings that families share."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field, model_validator

from components.core.config import Added, Block, Dropout, RunOnly, Size

Reads = Literal["both_sides", "left_to_right", "each_direction", "any_order", "source_then_target", "recurrent"]
"""How a model reads: a token sees those on both sides, those before it, a model reads ahead and another one back, a token sees those
before it in an order that is drawn, a target is read left to right beside the whole of a source, or a token sees what a state keeps of
those before it."""


class ArchitectureBlock(Block):
    """Base of the settings of all families."""

    reads: ClassVar[Reads]
    """An objective trains the families that read as it needs."""
    of_characters: ClassVar[bool] = False
    """Whether its tokens must be single characters."""
    has_layers_apart: ClassVar[bool] = True
    """Whether a layer can be taken by itself: kept as its inputs alone, or shared out among devices."""
    has_sublayers: ClassVar[bool] = True
    """Whether there are projections that adapters and low-rank updates attach to."""

    name: str
    num_layers: Size
    """Layers above the token embedding (BERT base: 12)."""
    max_length: Size
    """Longest input, in tokens."""

    @property
    def shares_weights(self) -> bool:
        """Whether layers use weights of one another."""
        return False


Activation = Literal["gelu", "gelu_tanh", "relu", "geglu", "swiglu"]
"""GELU by the error function, or its approximation by tanh that GPT-2 and Google's BERT were trained with; the last two are
gated and have a third matrix: with two thirds of the intermediate_size they are of one size with the others (Shazeer 2020)."""


SIZED = ("num_layers", "hidden_size", "num_heads", "intermediate_size")
"""The meaning of a size."""
SIZES = {"tiny": (2, 128), "mini": (4, 256), "small": (4, 512), "medium": (8, 512), "base": (12, 768), "large": (24, 1024)}
"""Layers and width: BERT's two (Devlin et al. 2019) and its miniatures (Turc et al. 2019); heads of 64, an inner width four times the
width."""


class TransformerArchitecture(ArchitectureBlock):
    """Settings that encoder and decoder share, and the choices that Narang et al. (2021) compared."""

    model_config = ConfigDict(json_schema_extra=lambda schema: schema.update(required=["name"]))  # `size` gives the others
    any_head_size: ClassVar[bool] = False
    """Whether heads may be of another width together than the model."""

    size: Annotated[Literal[tuple(SIZES)] | Annotated[int, Field(ge=1, le=256)] | None, RunOnly()] = None
    """In place of num_layers, hidden_size, num_heads and intermediate_size: BERT's sizes, `tiny` to `large`; or a number of layers, with a
    head of 64 for each and an inner width four times the width. max_length is then 512 if nothing is said. What it means is kept, not the
    name."""
    hidden_size: Size
    """Width of a token's vector in all layers (BERT base: 768)."""
    num_heads: Size
    """Attention heads of a layer; hidden_size is divisible by it (BERT base: 12 of 64)."""
    intermediate_size: Size
    """Inner width of the feed-forward part, usually four times hidden_size (BERT base: 3072)."""
    head_size: Annotated[Size | None, Added(neutral=None)] = None
    """Width of a head; null: hidden_size / num_heads. A model that heads were taken out of says it."""
    max_length: Annotated[int, Field(ge=8, le=2**40)]
    """Positions; also the longest training example, in tokens."""
    dropout: Dropout = 0.1
    """Probability with which a number is set to 0 in training (BERT: 0.1)."""
    positions: Literal["learned", "sinusoidal", "rotary", "relative", "alibi"] = "learned"
    """`sinusoidal` of Vaswani et al. 2017, `rotary` of Su et al. 2021, `relative`: a bias a head and distance,
    one table for all layers (T5, Raffel et al. 2020), `alibi`: a bias that falls with the distance, at another rate in each head
    (Press et al. 2022)."""
    norm: Literal["layer_norm", "rms_norm"] = "layer_norm"
    """`rms_norm`: without mean and bias (Zhang and Sennrich 2019)."""
    biases: Annotated[bool, Added(neutral=True)] = True
    """Whether the layers' matrices and norms have biases."""
    tie_word_embeddings: bool = True
    """The output's matrix is the token embedding."""

    @property
    def heads_size(self) -> int:
        """Width of all heads together."""
        return self.num_heads * self.head_size if self.head_size else self.hidden_size

    @model_validator(mode="before")
    @classmethod
    def sizes_by_name(cls, given: Any) -> Any:
        size = given.get("size") if isinstance(given, dict) else None
        if type(size) is not int and size not in SIZES:
            return given  # none, or what its field refuses
        layers, width = (size, 64 * size) if type(size) is int else SIZES[size]
        meant = dict(zip(SIZED, (layers, width, width // 64, 4 * width), strict=True))
        for key, value in meant.items():
            if given.get(key, value) != value:
                raise ValueError(
                    f"size {size} means {key} {value}, and {key}: {given[key]} contradicts it; leave one of them out"
                )
        return {"max_length": 512} | {key: value for key, value in given.items() if key != "size"} | meant

    @model_validator(mode="after")
    def heads_divide_width(self):
        if self.head_size and not self.any_head_size:
            raise ValueError(f"head_size is for other architectures than {self.name}: leave it out")
        if self.head_size and self.positions == "rotary":
            raise ValueError(
                "rotary positions need heads of hidden_size / num_heads: leave head_size out, or take other positions"
            )
        if not self.head_size and self.hidden_size % self.num_heads:
            raise ValueError(f"hidden_size {self.hidden_size} is not divisible by num_heads {self.num_heads}")
        if self.positions == "rotary" and self.hidden_size // self.num_heads % 2:
            raise ValueError(
                f"rotary positions need an even hidden_size / num_heads, and it is {self.hidden_size // self.num_heads}"
            )
        return self
