"""The recurrent encoder-decoder, a target token at a time."""

import torch
from torch import Tensor

from components.models.recurrent_encoder_decoder.model import RecurrentEncoderDecoder
from components.text.tokenizer import CLS


class Decoding:
    """What the model makes of targets that grow, one for each source: the decoder's states are all that is kept of them."""

    def __init__(self, model: RecurrentEncoderDecoder, ids: Tensor, lengths: Tensor, room: int):
        """Source ids (rows, length), padded on the right, lengths (rows,)."""
        self.model, self.source = model, model.encode(ids, lengths)
        self.states = model.begin(self.source)
        self.numbers = torch.arange(len(ids))  # of each row's source

    def opening(self) -> Tensor:
        """What the targets begin with, (rows, 1)."""
        return torch.full((len(self.numbers), 1), CLS)

    def read(self, ids: Tensor) -> Tensor:
        """The tokens that follow, (rows, new) -> what predicts the next ones, (rows, new, embedding)."""
        hidden, self.states, _ = self.model.decode(ids, self.source, self.states)
        return hidden

    def select(self, rows: Tensor, width: int = 1) -> None:
        """Keep these rows, in this order; one may be there several times."""
        self.states = [state[rows] for state in self.states]
        before, self.numbers = self.numbers, self.numbers[rows]
        if not torch.equal(before, self.numbers):  # beams change places within their source
            self.source = self.source.select(rows)

    @staticmethod
    @torch.no_grad()
    def looks(model: RecurrentEncoderDecoder, ids: Tensor, targets: Tensor) -> Tensor:
        """Where each place of a target looks in its source: ids (source,), targets (target,) -> (1, target, source), the weights of
        attention (Bahdanau et al. 2015, figure 3). Without attention all look at both ends."""
        source = model.encode(ids[None], torch.tensor([len(ids)]))
        read = torch.cat([torch.tensor([CLS]), targets[:-1]])[None]
        _, _, weights = model.decode(read, source, model.begin(source))
        if weights is None:
            weights = torch.zeros(1, len(targets), len(ids))
            weights[:, :, [0, -1]] = 0.5
        return weights
