"""Heads of fine-tuning."""

import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm, layer_norm
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from components.core.compute import full_precision
from components.models.common.dropout import Dropout
from components.models.common.transformer import length_mask


def scores(output: nn.Module, x: Tensor) -> Tensor:
    """What a head's last layers make of x, in 32 bits: the 8 bits of bf16 would give scores that differ the same value,
    and a rank correlation over texts that are much alike would be of a handful of values."""
    with full_precision(x):
        return output(x.float())


class ScalarMix(nn.Module):
    """gamma * sum of softmax(w) times the layers; w starts at 0, gamma at 1 (Peters et al. 2018, equation 1).

    `normalised`: each token's vector of each layer is normalised first (section 3.2: "it also helped to apply layer normalization"), so
    that layers of a large scale do not dominate, and the weights can be compared.
    """

    def __init__(self, num_layers: int, normalised: bool):
        super().__init__()
        self.normalised = normalised
        self.weights = nn.Parameter(torch.zeros(num_layers))
        self.gamma = nn.Parameter(torch.ones(()))

    def forward(self, layers: Tensor) -> Tensor:
        """(batch, length, layers, width) -> (batch, length, width)."""
        layers = layer_norm(layers, layers.shape[-1:]) if self.normalised else layers
        return self.gamma * torch.einsum("bldw,d->blw", layers, self.weights.softmax(0))


class OneLayer(nn.Module):
    """The only layer, with each token's vector normalised if the recipe says so."""

    def __init__(self, normalised: bool):
        super().__init__()
        self.normalised = normalised

    def forward(self, layers: Tensor) -> Tensor:
        """(batch, length, 1, width) -> (batch, length, width)."""
        return layer_norm(layers[:, :, 0], layers.shape[-1:]) if self.normalised else layers[:, :, 0]


class PooledHead(nn.Module):
    """Dropout and a linear layer on the model's pooled output, or on each token's."""

    def __init__(self, width: int, outputs: int, dropout: float):
        super().__init__()
        self.dropout = Dropout(dropout)
        self.output = nn.Linear(width, outputs)
        nn.init.normal_(self.output.weight, std=0.02)
        nn.init.zeros_(self.output.bias)

    def forward(self, pooled: Tensor) -> Tensor:
        """(..., width) -> (..., outputs)."""
        return scores(self.output, self.dropout(pooled))


class MeanHead(nn.Module):
    """Mixed layers, the mean over the tokens, and a linear layer; for a pair on [u, v, |u - v|, u * v]."""

    def __init__(self, mix: nn.Module, width: int, outputs: int, dropout: float, pair: bool, per_token: bool):
        super().__init__()
        self.mix, self.per_token = mix, per_token
        self.dropout = Dropout(dropout)
        self.output = nn.Linear((4 if pair else 1) * width, outputs)

    def forward(self, layers: Tensor, lengths: Tensor, texts: int) -> Tensor:
        """layers (texts * batch, length, layers, width), lengths (texts * batch,) -> (batch, outputs), or (batch, length, outputs)."""
        x = self.dropout(self.mix(layers))
        if self.per_token:
            return scores(self.output, x)
        return scores(self.output, pair_features(mean_over_tokens(x, lengths), texts))


class BatchNorm(nn.BatchNorm1d):
    """Batch norm that normalises a batch of one example, which has no variance, by the running statistics, as in evaluation."""

    def forward(self, x: Tensor) -> Tensor:
        """(batch, width) -> the same."""
        if len(x) > 1:
            return super().forward(x)
        return batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)


class ConcatHead(nn.Module):
    """Two layers with batch norm and dropout on the model's pooled output, the maximum and the mean over the tokens (Howard and Ruder
    2018, section 3.3). For a pair on [u, v, |u - v|, u * v]."""

    def __init__(self, width: int, hidden_size: int, outputs: int, dropout: float, pair: bool):
        super().__init__()
        size = (12 if pair else 3) * width
        self.output = nn.Sequential(
            BatchNorm(size), Dropout(dropout), nn.Linear(size, hidden_size), nn.ReLU(),
            BatchNorm(hidden_size), Dropout(dropout), nn.Linear(hidden_size, outputs),
        )  # fmt: skip

    def forward(self, hidden: Tensor, pooled: Tensor, lengths: Tensor, texts: int) -> Tensor:
        """hidden (texts * batch, length, width), pooled (texts * batch, width), lengths (texts * batch,) -> (batch, outputs)."""
        real = (torch.arange(hidden.shape[1], device=hidden.device) < lengths[:, None])[:, :, None]
        largest = hidden.masked_fill(~real, -torch.inf).amax(1)
        mean = (hidden * real).sum(1) / lengths[:, None]
        return scores(self.output, pair_features(torch.cat([pooled, largest, mean], 1), texts))


class BiLSTMAttentionHead(nn.Module):
    """Mixed layers, a biLSTM, attention pooling; for a pair [u, v, |u - v|, u * v] (as in the GLUE baselines, Wang et al. 2018)."""

    def __init__(self, mix: nn.Module, width: int, hidden_size: int, outputs: int, dropout: float, pair: bool, per_token: bool):
        super().__init__()
        self.mix, self.per_token = mix, per_token
        self.dropout = Dropout(dropout)
        self.lstm = nn.LSTM(width, hidden_size, bidirectional=True, batch_first=True)
        self.attention = None if per_token else nn.Linear(2 * hidden_size, 1)
        self.output = nn.Sequential(
            nn.Linear((8 if pair else 2) * hidden_size, hidden_size), nn.ReLU(), Dropout(dropout), nn.Linear(hidden_size, outputs)
        )  # fmt: skip

    def forward(self, layers: Tensor, lengths: Tensor, texts: int) -> Tensor:
        """layers (texts * batch, length, layers, width), lengths (texts * batch,) -> (batch, outputs), or (batch, length, outputs)."""
        x = self.dropout(self.mix(layers)).float()
        packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        with full_precision(x):  # bf16 halves a packed LSTM's speed on the CPU
            x, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=layers.shape[1])
        if self.per_token:
            return scores(self.output, x)
        weights = self.attention(x)[:, :, 0]
        mask = length_mask(lengths, x.shape[1])
        if mask is not None:
            weights = weights.masked_fill(~mask[:, 0, 0], -torch.inf)
        return scores(self.output, pair_features(torch.einsum("bl,blw->bw", weights.softmax(1), x), texts))


def mean_over_tokens(hidden: Tensor, lengths: Tensor) -> Tensor:
    """hidden (batch, length, width), lengths (batch,) -> (batch, width), without padding."""
    real = torch.arange(hidden.shape[1], device=hidden.device) < lengths[:, None]
    return (hidden * real[:, :, None]).sum(1) / lengths[:, None]


def pair_features(vectors: Tensor, texts: int) -> Tensor:
    """(texts * batch, width) -> (batch, width), or for two texts [u, v, |u - v|, u * v], (batch, 4 * width)."""
    if texts == 1:
        return vectors
    u, v = vectors.chunk(2)
    return torch.cat([u, v, (u - v).abs(), u * v], 1)
