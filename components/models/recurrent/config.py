"""Settings of the recurrent language model."""

from typing import Literal

from pydantic import model_validator

from components.core.config import Dropout, Layers, Size
from components.models.common.config import ArchitectureBlock


class RecurrentArchitecture(ArchitectureBlock):
    """AWD-LSTM (Merity et al. 2018) with ULMFiT's dropout rates, which are for many epochs; with `cell: gru` and one layer the encoder
    of skip-thoughts (Kiros et al. 2015)."""

    reads = "recurrent"
    has_separate_layers = False
    has_sublayers = False

    name: Literal["recurrent"]
    cell: Literal["lstm", "gru"] = "lstm"
    """`lstm` (Hochreiter and Schmidhuber 1997) or `gru` (Cho et al. 2014)."""
    num_layers: Layers = 3
    """Recurrent layers."""
    hidden_size: Size
    """Width of the token embedding and of the last layer (400 in the paper)."""
    inner_size: Size | None = None
    """Width of the layers below the last (1150 in the paper); null: hidden_size. Methods that mix layers need equal widths."""
    backward: bool = False
    """Whether it reads a text from its end."""
    max_length: Size = 512
    """Longest input read as features, in tokens."""
    tie_word_embeddings: bool = True
    """Whether the output matrix is the token embedding."""
    embedding_dropout: Dropout = 0.05
    """Dropout of complete token vectors: a token is dropped everywhere in the batch (Gal and Ghahramani 2016)."""
    input_dropout: Dropout = 0.4
    """Dropout of the token vectors, of the same dimensions in all tokens of a text, like the next two."""
    hidden_dropout: Dropout = 0.3
    """Dropout between layers."""
    dropout: Dropout = 0.4
    """Dropout of the last layer."""
    weight_dropout: Dropout = 0.5
    """Dropout of the hidden-to-hidden matrices, drawn once per batch (Wan et al. 2013)."""

    @property
    def sets_widths_apart(self) -> str:
        return "inner_size" if self.inner_size not in (None, self.hidden_size) else ""

    @model_validator(mode="after")
    def inner_layers_exist(self):
        if self.inner_size and self.num_layers == 1:
            raise ValueError("inner_size has no effect: it is the size of the layers below the last, and num_layers is 1; leave it out")
        return self


Architecture = RecurrentArchitecture
