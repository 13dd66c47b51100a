"""Generation with the recurrent model, token by token."""

import torch
from torch import Tensor

from components.core.errors import SesameError
from components.models.recurrent.model import Recurrent


class Decoding:
    """The state of growing texts: the recurrent states of the layers."""

    def __init__(self, model: Recurrent, ids: Tensor, lengths: Tensor, capacity: int):
        """Prefixes (rows, length), all of the same length. Raise SesameError for a model that reads from the end."""
        if model.config.backward:
            raise SesameError("a model with architecture.backward reads a text from its end and can't continue one")
        self.model, self.prefix, self.states = model, ids, None

    def opening(self) -> Tensor:
        """Return the prefixes, (rows, length)."""
        return self.prefix

    def read(self, ids: Tensor) -> Tensor:
        """The next tokens (rows, new) -> the last layer for them, (rows, new, hidden)."""
        hidden, self.states = self.model(ids, self.states)
        return hidden

    def select(self, rows: Tensor, width: int = 1) -> None:
        """Keep these texts, in this order; one may occur several times."""
        self.states = [tuple(torch.index_select(tensor, 0, rows) for tensor in state) for state in self.states]
