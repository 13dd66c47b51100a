"""Recurrent language model: AWD-LSTM (Merity et al. 2018), the model of ULMFiT (Howard and Ruder 2018)."""

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from components.core.compute import full_precision
from components.core.errors import SesameError
from components.models.common.dropout import dropout
from components.models.common.reverse import reverse
from components.models.contract import LanguageModel
from components.models.recurrent.config import RecurrentArchitecture
from components.text.tokenizer import Tokenizer

State = tuple[Tensor, ...]
"""The state of a layer: h, and of an LSTM c, each (batch, width)."""


class Recurrent(LanguageModel):
    """LSTM or GRU layers and a softmax tied to the embedding; a text is read from a zero state."""

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
        """ids (batch, length) of a text, or of a reversed text -> the last layer (batch, length, hidden), and the final states."""
        outputs, states = self._read(ids, states)
        return outputs[-1], states

    def _read(self, ids: Tensor, states: list[State] | None) -> tuple[list[Tensor], list[State]]:
        """Return the embedding and every layer's output, each (batch, length, its width), and the final states."""
        config, final_states = self.config, []
        x = self.token_embedding(ids)
        if self.training and config.embedding_dropout:
            x = x * dropout(x.new_ones(self.token_embedding.num_embeddings, 1), config.embedding_dropout)[ids]
        outputs = [self._locked(x, config.input_dropout)]
        for i, cell in enumerate(self.cells):
            x, state = self._layer(cell, outputs[-1], states[i] if states else None)
            last = i + 1 == len(self.cells)
            outputs.append(self._locked(x, config.dropout if last else config.hidden_dropout))
            final_states.append(state)
        return outputs, final_states

    def _locked(self, x: Tensor, probability: float) -> Tensor:
        """Drop the same dimensions of all tokens of a text in training; x (batch, length, width)."""
        return x * dropout(x.new_ones(len(x), 1, x.shape[2]), probability) if self.training and probability else x

    def _layer(self, cell: nn.LSTM | nn.GRU, x: Tensor, state: State | None) -> tuple[Tensor, State]:
        weights = [cell.weight_ih_l0, cell.weight_hh_l0, cell.bias_ih_l0, cell.bias_hh_l0]
        if self.training and self.config.weight_dropout:
            weights[1] = dropout(weights[1], self.config.weight_dropout)
        lstm = isinstance(cell, nn.LSTM)
        state = state or (x.new_zeros(len(x), cell.hidden_size),) * (2 if lstm else 1)
        with full_precision(x):  # bf16 halves an LSTM's speed on a CPU
            initial = tuple(tensor[None].float().contiguous() for tensor in state)
            # the function that the module calls, which accepts weights that are not parameters
            run = torch.lstm if lstm else torch.gru
            y, *final = run(x.float(), initial if lstm else initial[0], weights, True, 1, 0.0, self.training, False, True)
        return y, tuple(tensor[0] for tensor in final)

    def logits(self, hidden: Tensor) -> Tensor:
        """(..., hidden) -> (..., vocab_size)."""
        return linear(hidden, (self.output_embedding or self.token_embedding).weight, self.output_bias)

    def layers(self, ids: Tensor, lengths: Tensor, segment_ids: Tensor | None = None) -> list[Tensor]:
        """Return all layers. Raise SesameError if they have different widths."""
        if self.config.inner_size not in (None, self.width):
            raise SesameError(
                f"layers of {self.config.inner_size} and {self.width} can't be mixed: leave architecture.inner_size out, or "
                "take a method and head that read the last layer (method full, head pooled or concat)"
            )
        return self._in_order(ids, lengths)

    def top(self, ids: Tensor, lengths: Tensor, segment_ids: Tensor | None = None) -> Tensor:
        return self._in_order(ids, lengths)[-1]

    def _in_order(self, ids: Tensor, lengths: Tensor) -> list[Tensor]:
        """Return all layers in the order of the text, also if the model reads it backwards."""
        if not self.config.backward:
            return self._read(ids, None)[0]
        return [reverse(x, lengths) for x in self._read(reverse(ids, lengths), None)[0]]

    def pool(self, hidden: Tensor, lengths: Tensor) -> Tensor:
        """(batch, length, hidden) -> (batch, hidden): the output after the complete text."""
        if self.config.backward:
            return hidden[:, 0]
        return hidden[torch.arange(len(lengths), device=hidden.device), lengths - 1]


Model = Recurrent
