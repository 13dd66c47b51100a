"""What every model gives to those that train, tune and read it."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn


class LanguageModel(nn.Module, ABC):
    """A network as pre-training leaves it. Its `forward` is between a family and its objectives; all others read it by what stands here."""

    stack: ClassVar[str] = "blocks"
    """The list of layers, first to last."""
    embeddings: ClassVar[frozenset[str]]
    """Parts below the layers; all other parts stand above them."""
    embedding: ClassVar[str] = "token_embedding"
    """The part that turns ids (batch, length) into vectors (batch, length, any width)."""
    low_rank: ClassVar[tuple[str, ...]] = ()
    """Names of the linear layers that low-rank updates are made to."""

    reads: str
    """As its architecture says: left_to_right, recurrent, each_direction, both_sides ... `store.build` sets it."""
    width: int
    """Of `layers`."""
    num_layers: int
    max_length: int
    """Longest input, in tokens."""
    forced_end: int | None = None
    """The last token of a text that it writes as long as it may; None: the likeliest."""
    absent: Sequence[str] = ()
    """Parts that no training has touched, whose weights are random in every load."""

    @abstractmethod
    def layers(self, ids: Tensor, lengths: Tensor, segment_ids: Tensor | None = None) -> list[Tensor]:
        """ids, segment_ids (batch, length), lengths (batch,) -> the embedding and every layer's output, each (batch, length, width).

        Padding stands on the right.
        """

    @abstractmethod
    def pool(self, hidden: Tensor, lengths: Tensor) -> Tensor:
        """The last layer (batch, length, width) -> (batch, width): what a text says as one vector."""

    @abstractmethod
    def logits(self, hidden: Tensor) -> Tensor:
        """(..., hidden) -> (..., vocab_size); of a model that reads each direction apart, hidden is that of one."""

    def top(self, ids: Tensor, lengths: Tensor, segment_ids: Tensor | None = None) -> Tensor:
        """The last layer, (batch, length, width)."""
        return self.layers(ids, lengths, segment_ids)[-1]

    def features(self, ids: Tensor, lengths: Tensor, segment_ids: Tensor | None = None) -> Tensor:
        """All layers, the embedding first: (batch, length, num_layers + 1, width)."""
        return torch.stack(self.layers(ids, lengths, segment_ids), 2)

    def sublayers(self) -> list[tuple[nn.Module, str]]:
        """Where adapters go: behind this attribute of that module, a projection to (batch, length, width). Empty where there are none."""
        return []

    def stacked(self) -> list[nn.Module]:
        """All layers, wherever their lists stand."""
        return [layer for name, part in self.named_modules() if name.rpartition(".")[2] == self.stack for layer in part]

    def depth(self, parameter: str) -> int:
        """Of a parameter by its name: 0 below the layers, 1 in the first of them, num_layers + 1 above them."""
        part, *rest = parameter.split(".")
        if part in self.embeddings:
            return 0
        if self.stack in (part, *rest):  # a list of layers may stand in a part, as in each of ELMo's two models
            return int([part, *rest][[part, *rest].index(self.stack) + 1]) + 1
        return self.num_layers + 1
