"""Recurrent language model: AWD-LSTM (Merity et al. 2018), the model of ULMFiT (Howard and Ruder 2018)."""

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from components.core.errors import SesameError
from components.models.common.dropout import dropout
from components.models.common.turned import turned
from components.models.contract import LanguageModel
from components.models.recurrent.config import RecurrentArchitecture
from components.text.tokenizer import Tokenizer

State = tuple[Tensor, ...]
"""Of a layer: h, and of an LSTM c, each (batch, width)."""


class Recurrent(LanguageModel):
    """Layers of LSTMs or GRUs under a softmax that shares the embedding's matrix; a text is read from a fresh state."""

    stack = "cells"
    embeddings = frozenset({"token_embedding"})

    def __init__(self, config: RecurrentArchitecture, tokens: Tokenizer):
        super().__init__()
        size, inner = config.hidden_size, config.inner_size or config.hidden_size
        self.config, self.width, self.num_layers, self.max_length = config, size, config.num_layers, config.max_length
        widths = [size] + [inner] * (config.num_layers - 1) + [size]
        cell = {"lstm": nn.LSTM, "gru": nn.GRU}[config.cell]
        self.token_embedding = nn.Embedding(tokens.vocab_size, size)
        self.cells = nn.ModuleList(cell(width, following, batch_first=True) for width, following in zip(widths, widths[1:], strict=False))
        self.output_embedding = None if config.tie_word_embeddings else nn.Embedding(tokens.vocab_size, size)
        self.output_bias = nn.Parameter(torch.zeros(tokens.vocab_size))
        for embedding in filter(None, (self.token_embedding, self.output_embedding)):
            nn.init.uniform_(embedding.weight, -0.1, 0.1)

    def forward(self, ids: Tensor, states: list[State] | None = None) -> tuple[Tensor, list[State]]:
        """ids (batch, length) of a text, or of one that is read backwards -> the last layer (batch, length, hidden), and where each layer
        ends."""
        outputs, states = self._read(ids, states)
        return outputs[-1], states

    def _read(self, ids: Tensor, states: list[State] | None) -> tuple[list[Tensor], list[State]]:
        """The embedding and every layer's output, each (batch, length, its width)."""
        config, ends = self.config, []
        x = self.token_embedding(ids)
        if self.training and config.embedding_dropout:
            x = x * dropout(x.new_ones(self.token_embedding.num_embeddings, 1), config.embedding_dropout)[ids]
        outputs = [self._locked(x, config.input_dropout)]
        for i, cell in enumerate(self.cells):
            x, end = self._layer(cell, outputs[-1], states[i] if states else None)
            last = i + 1 == len(self.cells)
            outputs.append(self._locked(x, config.dropout if last else config.hidden_dropout))
            ends.append(end)
        return outputs, ends

    def _locked(self, x: Tensor, probability: float) -> Tensor:
        """x (batch, length, width) with the same places of all tokens of a row dropped while training."""
        return x * dropout(x.new_ones(len(x), 1, x.shape[2]), probability) if self.training and probability else x

    def _layer(self, cell: nn.LSTM | nn.GRU, x: Tensor, state: State | None) -> tuple[Tensor, State]:
        weights = [cell.weight_ih_l0, cell.weight_hh_l0, cell.bias_ih_l0, cell.bias_hh_l0]
        if self.training and self.config.weight_dropout:
            weights[1] = dropout(weights[1], self.config.weight_dropout)
        lstm = isinstance(cell, nn.LSTM)
        state = state or (x.new_zeros(len(x), cell.hidden_size),) * (2 if lstm else 1)
        # bf16 halves an LSTM's speed on a CPU; memory and FLOPs are estimated on the device meta, which knows no autocast
        with torch.autocast("cuda" if x.is_cuda else "cpu", enabled=False):
            before = tuple(part[None].float().contiguous() for part in state)
            # the function behind the module: this one takes weights that are no parameters
            read = torch.lstm if lstm else torch.gru
            y, *after = read(x.float(), before if lstm else before[0], weights, True, 1, 0.0, self.training, False, True)
        return y, tuple(part[0] for part in after)

    def logits(self, hidden: Tensor) -> Tensor:
        """(..., hidden) -> (..., vocab_size)."""
        return linear(hidden, (self.output_embedding or self.token_embedding).weight, self.output_bias)

    def layers(self, ids: Tensor, lengths: Tensor, segment_ids: Tensor | None = None) -> list[Tensor]:
        """As every model's. Raises SesameError where layers are of several widths."""
        if self.config.inner_size not in (None, self.width):
            raise SesameError(
                f"layers of {self.config.inner_size} and {self.width} can't be mixed: leave architecture.inner_size out, or "
                "take a method and head that read the last layer (method full, head pooled or concat)"
            )
        return self._as_text(ids, lengths)

    def top(self, ids: Tensor, lengths: Tensor, segment_ids: Tensor | None = None) -> Tensor:
        """The last layer, (batch, length, width)."""
        return self._as_text(ids, lengths)[-1]

    def _as_text(self, ids: Tensor, lengths: Tensor) -> list[Tensor]:
        """Texts (batch, length) as rows are read: the outputs stand where the tokens do."""
        if not self.config.backward:
            return self._read(ids, None)[0]
        return [turned(x, lengths) for x in self._read(turned(ids, lengths), None)[0]]

    def pool(self, hidden: Tensor, lengths: Tensor) -> Tensor:
        """(batch, length, hidden) -> (batch, hidden): where the whole text has been read."""
        if self.config.backward:
            return hidden[:, 0]
        return hidden[torch.arange(len(lengths), device=hidden.device), lengths - 1]


Model = Recurrent
