"""A head for pairs that compares two texts token by token."""

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm

from components.models.common.dropout import Dropout
from components.models.common.heads import MeanHead, scores


class DecomposableAttentionHead(nn.Module):
    """Mixes and normalises the layers, compares each token t with the tokens s of the other text it attends to, [t, s, |t - s|, t * s],
    and aggregates each text by mean and maximum.

    Attend, compare, aggregate: Parikh et al. 2016, section 3; mean and maximum instead of a sum: Chen et al. 2017, section 3.3.
    """

    def __init__(self, mix: nn.Module, width: int, hidden_size: int, outputs: int, dropout: float):
        super().__init__()
        self.mix = mix
        self.dropout = Dropout(dropout)
        self.attend = nn.Linear(width, width)
        self.compare = nn.Sequential(nn.Linear(4 * width, hidden_size), nn.ReLU(), Dropout(dropout))
        self.aggregate = nn.Sequential(
            nn.Linear(4 * hidden_size, hidden_size), nn.ReLU(), Dropout(dropout), nn.Linear(hidden_size, outputs)
        )  # fmt: skip

    def forward(self, layers: Tensor, lengths: Tensor, texts: int) -> Tensor:
        """layers (2 * batch, length, layers, width), the first texts of all pairs before the second ones, lengths (2 * batch,)
        -> (batch, outputs)."""
        # normalised, so that equal tokens attend to each other from the first step on, whatever the scale of a model's layers
        mixed = self.mix(layers)
        tokens = self.dropout(layer_norm(mixed, mixed.shape[-1:]))
        real = torch.arange(tokens.shape[1], device=tokens.device) < lengths[:, None]
        (u, v), (real_u, real_v), (from_u, from_v) = tokens.chunk(2), real.chunk(2), self.attend(tokens).chunk(2)
        similarity = torch.einsum("buw,bvw->buv", from_u, from_v) / tokens.shape[2] ** 0.5  # (batch, length, length)
        attended = torch.cat([
            similarity.masked_fill(~real_v[:, None], -torch.inf).softmax(2) @ v,
            similarity.masked_fill(~real_u[:, :, None], -torch.inf).softmax(1).transpose(1, 2) @ u,
        ])  # fmt: skip
        compared = self.compare(torch.cat([tokens, attended, (tokens - attended).abs(), tokens * attended], 2))
        mean = (compared * real[:, :, None]).sum(1) / lengths[:, None]
        largest = compared.masked_fill(~real[:, :, None], -torch.inf).amax(1)
        return scores(self.aggregate, torch.cat([*mean.chunk(2), *largest.chunk(2)], 1))


def pair_head(
    mix: nn.Module, width: int, hidden_size: int, outputs: int, dropout: float, apart: bool, per_token: bool,
) -> nn.Module:  # fmt: skip
    """Return that head for texts that are encoded separately; for a single input, a linear layer on the mean over the tokens."""
    if apart:
        return DecomposableAttentionHead(mix, width, hidden_size, outputs, dropout)
    return MeanHead(mix, width, outputs, dropout, apart, per_token)
