"""The recurrent model, a token at a time."""

import torch
from torch import Tensor

from components.core.errors import SesameError
from components.models.recurrent.model import Recurrent


class Decoding:
    """What the model makes of texts that grow: its states are all that is kept."""

    def __init__(self, model: Recurrent, ids: Tensor, lengths: Tensor, room: int):
        """Beginnings (rows, length), all as long. Raises SesameError for a model that reads from the end."""
        if model.config.backward:
            raise SesameError("a model with architecture.backward reads a text from its end and can't go on with one")
        self.model, self.begun, self.states = model, ids, None

    def opening(self) -> Tensor:
        """What the texts begin with, (rows, length)."""
        return self.begun

    def read(self, ids: Tensor) -> Tensor:
        """The tokens that follow, (rows, new) -> the last layer there, (rows, new, hidden)."""
        hidden, self.states = self.model(ids, self.states)
        return hidden

    def select(self, rows: Tensor, width: int = 1) -> None:
        """Keep these rows, in this order; one may be there several times."""
        self.states = [tuple(torch.index_select(part, 0, rows) for part in state) for state in self.states]
