"""The decoder as a prefix language model (Raffel et al. 2020, section 3.2.1; Dong et al. 2019, UniLM)."""

import torch
from torch import Tensor

from components.models.common.heads import mean_over_tokens
from components.models.decoder.model import Decoder
from components.models.prefix_decoder.config import PrefixDecoderArchitecture
from components.text.tokenizer import CLS, Tokenizer


class PrefixDecoder(Decoder):
    """`decoder` over a source, the start token `[CLS]`, and the target. All differences to it are in the mask.

    In a row the source is padded on its left, so that the target follows it and distances are those of the text.
    """

    def __init__(self, config: PrefixDecoderArchitecture, tokens: Tokenizer):
        super().__init__(config.model_copy(update={"max_length": 2 * config.max_length}), tokens)
        self.max_length, self.both_sides = config.max_length, config.prefix == "both_sides"

    def forward(self, ids: Tensor, lengths: Tensor, targets: Tensor) -> Tensor:
        """Source ids (batch, source), lengths (batch,); targets (batch, target), both padded on the right
        -> (batch, target, hidden): at each position the state that predicts the target there, from the source and the targets before."""
        source = ids.shape[1]
        row = torch.cat([padded_left(ids, lengths), torch.full_like(targets[:, :1], CLS), targets[:, :-1]], 1)
        places, mask = self.places(lengths, source, row.shape[1]), self.visible(lengths, source, row.shape[1])
        return self._states(row, places, mask)[-1][:, source:]

    def places(self, lengths: Tensor, source: int, length: int) -> Tensor:
        """Positions (batch, length) in rows with so many tokens of padding and source; padding is at 0."""
        return (torch.arange(length, device=lengths.device) - (source - lengths)[:, None]).clamp(min=0)

    def visible(self, lengths: Tensor, source: int, length: int) -> Tensor:
        """(batch, 1, length, length): True where the token of a row attends to that of a column."""
        place = torch.arange(length, device=lengths.device)
        allowed = place <= place[:, None]
        if self.both_sides:
            allowed = allowed | ((place < source) & (place[:, None] < source))
        real = place >= (source - lengths)[:, None]
        # padding attends to itself: no row of the softmax may be empty
        return (allowed & real[:, None] | (place == place[:, None]))[:, None]

    def encode(self, ids: Tensor, lengths: Tensor) -> list[Tensor]:
        """Source ids (batch, length), padded on the right -> the embedding and every layer's output, each (batch, length, hidden)."""
        if not self.both_sides:
            return super().layers(ids, lengths)
        real = torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]
        return self._states(ids, None, real[:, None, None])

    def layers(self, ids: Tensor, lengths: Tensor, segment_ids: Tensor | None = None) -> list[Tensor]:
        return self.encode(ids, lengths)

    def pool(self, hidden: Tensor, lengths: Tensor) -> Tensor:
        return mean_over_tokens(hidden, lengths) if self.both_sides else super().pool(hidden, lengths)


def padded_left(ids: Tensor, lengths: Tensor) -> Tensor:
    """ids (batch, length), padded on the right -> the same, padded on the left with each row's first token."""
    places = torch.arange(ids.shape[1], device=ids.device) - (ids.shape[1] - lengths)[:, None]
    return ids.gather(1, places.clamp(min=0))


Model = PrefixDecoder
