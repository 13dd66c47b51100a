"""What fine-tuning puts on a model."""

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from components.models.blocks import length_mask


class ScalarMix(nn.Module):
    """gamma * sum of softmax(w) times the layers; w starts at 0, gamma at 1 (Peters et al. 2018, equation 1)."""

    def __init__(self, num_layers: int):
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(num_layers))
        self.gamma = nn.Parameter(torch.ones(()))

    def forward(self, layers: Tensor) -> Tensor:
        """(batch, length, layers, width) -> (batch, length, width)."""
        return self.gamma * torch.einsum("bldw,d->blw", layers, self.weights.softmax(0))


class PooledHead(nn.Module):
    """Dropout and a linear layer on the model's pooled output."""

    def __init__(self, width: int, outputs: int, dropout: float):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(width, outputs)
        nn.init.normal_(self.output.weight, std=0.02)
        nn.init.zeros_(self.output.bias)

    def forward(self, pooled: Tensor) -> Tensor:
        """(batch, width) -> (batch, outputs)."""
        return self.output(self.dropout(pooled))


class BiLSTMAttentionHead(nn.Module):
    """Mixed layers, a biLSTM, attention pooling; for a pair [u, v, |u - v|, u * v] (as in the GLUE baselines, Wang et al. 2018)."""

    def __init__(self, width: int, num_layers: int, hidden_size: int, outputs: int, dropout: float, pair: bool):
        super().__init__()
        self.mix = ScalarMix(num_layers)
        self.dropout = nn.Dropout(dropout)
        self.lstm = nn.LSTM(width, hidden_size, bidirectional=True, batch_first=True)
        self.attention = nn.Linear(2 * hidden_size, 1)
        self.output = nn.Sequential(
            nn.Linear((8 if pair else 2) * hidden_size, hidden_size), nn.ReLU(), nn.Dropout(dropout), nn.Linear(hidden_size, outputs)
        )  # fmt: skip

    def read(self, layers: Tensor, lengths: Tensor) -> Tensor:
        """(batch, length, layers, width) -> (batch, 2 * hidden_size)."""
        x = self.dropout(self.mix(layers))
        packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        x, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=layers.shape[1])
        scores = self.attention(x)[:, :, 0]
        mask = length_mask(lengths, x.shape[1])
        if mask is not None:
            scores = scores.masked_fill(~mask[:, 0, 0], -torch.inf)
        return torch.einsum("bl,blw->bw", scores.softmax(1), x)

    def forward(self, a: Tensor, b: Tensor | None = None) -> Tensor:
        """(batch, 2 * hidden_size) of each text -> (batch, outputs)."""
        return self.output(a if b is None else torch.cat([a, b, (a - b).abs(), a * b], 1))
