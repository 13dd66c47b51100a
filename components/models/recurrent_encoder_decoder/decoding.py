"""Generation with the recurrent encoder-decoder, token by token."""

import torch
from torch import Tensor

from components.models.recurrent_encoder_decoder.model import RecurrentEncoderDecoder
from components.text.tokenizer import CLS


class Decoding:
    """The state of growing targets, one per source: the decoder's states and the encoded sources."""

    def __init__(self, model: RecurrentEncoderDecoder, ids: Tensor, lengths: Tensor, capacity: int):
        """Source ids (rows, length), padded on the right, lengths (rows,)."""
        self.model, self.source = model, model.encode(ids, lengths)
        self.states = model.initial_states(self.source)
        self.source_numbers = torch.arange(len(ids))  # of each target

    def opening(self) -> Tensor:
        """Return the start tokens of the targets, (rows, 1)."""
        return torch.full((len(self.source_numbers), 1), CLS)

    def read(self, ids: Tensor) -> Tensor:
        """The next tokens (rows, new) -> the states that predict the tokens after them, (rows, new, embedding)."""
        hidden, self.states, _ = self.model.decode(ids, self.source, self.states)
        return hidden

    def select(self, rows: Tensor, width: int = 1) -> None:
        """Keep these targets, in this order; one may occur several times."""
        self.states = [state[rows] for state in self.states]
        before, self.source_numbers = self.source_numbers, self.source_numbers[rows]
        if not torch.equal(before, self.source_numbers):  # not if beams only change places within their source
            self.source = self.source.select(rows)

    @staticmethod
    @torch.no_grad()
    def attention_weights(model: RecurrentEncoderDecoder, ids: Tensor, targets: Tensor) -> Tensor:
        """ids (source,), targets (target,) -> the attention weights, (1, target, source) (Bahdanau et al. 2015, figure 3).

        Without attention they are shared by both ends of the source.
        """
        source = model.encode(ids[None], torch.tensor([len(ids)]))
        inputs = torch.cat([torch.tensor([CLS]), targets[:-1]])[None]
        _, _, weights = model.decode(inputs, source, model.initial_states(source))
        if weights is None:
            weights = torch.zeros(1, len(targets), len(ids))
            weights[:, :, [0, -1]] = 0.5
        return weights
