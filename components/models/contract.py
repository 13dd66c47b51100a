"""The interface of a language model for pre-training, fine-tuning and evaluation."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn


class LanguageModel(nn.Module, ABC):
    """A pre-trained network. Only the objectives of its family use `forward`; all other code uses the methods below.

    What `forward` takes and returns follows from `reads`; ids are (batch, length):

    - `both_sides`: ids, lengths, segment_ids -> (batch, length, hidden)
    - `left_to_right`: ids, and for rows of several documents positions and mask -> (batch, length, hidden)
    - `recurrent`: ids, states -> (batch, length, hidden), states
    - `each_direction`: ids forward, ids backward, states -> both as (batch, length, hidden), states
    - `source_then_target`: ids, lengths, target ids -> (batch, target, hidden), from each of which that token is predicted
    - `any_order`: ids, order, positions, documents, memory -> (batch, targets, hidden), memory
    - `no_context`: nothing trains it
    """

    stack: ClassVar[str] = "blocks"
    """Name of the list of layers, first to last."""
    embeddings: ClassVar[frozenset[str]]
    """Modules below the layers; all other modules are above them."""
    embedding: ClassVar[str] = "token_embedding"
    """The module that maps ids (batch, length) to vectors (batch, length, any width)."""
    low_rank: ClassVar[tuple[str, ...]] = ()
    """Names of the linear layers that get low-rank updates."""

    reads: str
    """The `reads` of its architecture, set by `store.build`."""
    width: int
    """Width of `layers`."""
    num_layers: int
    max_length: int
    """Longest input, in tokens."""
    forced_end: int | None = None
    """The last token of a generated text of the maximum length; None: the likeliest token."""
    forced_first: int | None = None
    """The first new token of a generated text; None: the likeliest token."""
    absent: Sequence[str] = ()
    """Modules without trained weights, which are random in every load."""

    @abstractmethod
    def layers(self, ids: Tensor, lengths: Tensor, segment_ids: Tensor | None = None) -> list[Tensor]:
        """ids, segment_ids (batch, length), lengths (batch,) -> the embedding and every layer's output, each (batch, length, width).

        Padding is on the right.
        """

    @abstractmethod
    def pool(self, hidden: Tensor, lengths: Tensor) -> Tensor:
        """The last layer (batch, length, width) -> (batch, width): one vector per text."""

    @abstractmethod
    def logits(self, hidden: Tensor) -> Tensor:
        """(..., hidden) -> (..., vocab_size); of a model with separate directions, hidden is that of one direction."""

    def top(self, ids: Tensor, lengths: Tensor, segment_ids: Tensor | None = None) -> Tensor:
        """Return the last layer, (batch, length, width)."""
        return self.layers(ids, lengths, segment_ids)[-1]

    def features(self, ids: Tensor, lengths: Tensor, segment_ids: Tensor | None = None) -> Tensor:
        """Return all layers, the embedding first: (batch, length, num_layers + 1, width)."""
        return torch.stack(self.layers(ids, lengths, segment_ids), 2)

    def at(self, ids: Tensor, lengths: Tensor, segment_ids: Tensor | None, positions: Tensor) -> Tensor:
        """Return what `forward` gives for some tokens: positions (batch, targets) -> (batch, targets, width).

        A family whose last layer is cheaper for some tokens than for all computes it for these alone.
        """
        return gather_positions(self(ids, lengths, segment_ids), positions)

    def at_holes(self, ids: Tensor, lengths: Tensor, positions: Tensor, holes: Tensor) -> Tensor:
        """Return the states from which `logits` predicts hidden tokens: ids (batch, length); holes (batch, length) bool,
        where a masked model's `[MASK]` stands; positions (batch, targets) of some of them -> (batch, targets, width)."""
        return self.at(ids, lengths, None, positions)

    def sublayers(self) -> list[tuple[nn.Module, str]]:
        """Return the projections to (batch, length, width) that adapters follow, as (module, attribute); empty if there are none."""
        return []

    def stacked(self) -> list[nn.Module]:
        """Return all layers, in whichever modules their lists are."""
        return [layer for name, layers in self.named_modules() if name.rpartition(".")[2] == self.stack for layer in layers]

    def depth(self, parameter: str) -> int:
        """Return the depth of a parameter by its name: 0 below the layers, 1 in the first of them, num_layers + 1 above them."""
        path = parameter.split(".")
        if path[0] in self.embeddings:
            return 0
        if self.stack in path:  # the list of layers may be in a submodule, as in each of ELMo's two models
            return int(path[path.index(self.stack) + 1]) + 1
        return self.num_layers + 1


def gather_positions(hidden: Tensor, positions: Tensor) -> Tensor:
    """hidden (..., length, width), positions (..., targets) -> (..., targets, width)."""
    return hidden.gather(-2, positions[..., None].expand(*positions.shape, hidden.shape[-1]))
