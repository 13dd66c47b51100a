"""Recurrent encoder-decoder with attention (Bahdanau et al. 2015)."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from components.core.errors import SesameError
from components.models.common.dropout import Dropout
from components.models.common.reverse import reverse
from components.models.contract import LanguageModel
from components.models.recurrent_encoder_decoder.config import RecurrentEncoderDecoderArchitecture
from components.text.tokenizer import CLS, Tokenizer


class Source(NamedTuple):
    """The encoded sources; without attention only `ends`."""

    ends: Tensor  # (batch, hidden): final states of both directions
    states: Tensor | None = None  # (batch, source, hidden), the annotations of the paper
    keys: Tensor | None = None  # (batch, source, hidden), for the attention scores
    padding: Tensor | None = None  # (batch, 1, source), True for padding

    def select(self, rows: Tensor) -> "Source":
        """Return these sources, in this order."""
        return Source(*(None if tensor is None else tensor[rows] for tensor in self))


class RecurrentEncoderDecoder(LanguageModel):
    """A bidirectional GRU encoder and a GRU decoder, with one embedding for source and target.

    The GRUs are torch's, which apply the reset gate after the matrix, not before it (as cuDNN does; section A.1.1 of the paper).
    """

    stack = "encoder"
    embeddings = frozenset({"token_embedding"})

    def __init__(self, config: RecurrentEncoderDecoderArchitecture, tokens: Tokenizer):
        super().__init__()
        size, embedding_size = config.hidden_size, config.embedding_size or config.hidden_size
        self.config, self.width, self.num_layers, self.max_length = config, size, config.num_layers, config.max_length
        self.token_embedding = nn.Embedding(tokens.vocab_size, embedding_size)
        self.encoder = nn.ModuleList(BidirectionalGRU(size if i else embedding_size, size) for i in range(config.num_layers))
        self.bridge = nn.Linear(size, config.num_layers * size)
        self.attention = {"additive": Additive, "dot": Dot}[config.attention](size) if config.attention != "none" else None
        self.decoder = nn.ModuleList(nn.GRU(size if i else embedding_size + size, size, batch_first=True) for i in range(config.num_layers))
        self.readout = nn.Linear(size + size + embedding_size, 2 * embedding_size)
        self.output_embedding = None if config.tie_word_embeddings else nn.Embedding(tokens.vocab_size, embedding_size)
        self.output_bias = nn.Parameter(torch.zeros(tokens.vocab_size))
        self.dropout = Dropout(config.dropout)
        for embedding in filter(None, (self.token_embedding, self.output_embedding)):
            nn.init.uniform_(embedding.weight, -0.1, 0.1)

    def forward(self, ids: Tensor, lengths: Tensor, targets: Tensor) -> Tensor:
        """Source ids (batch, source), lengths (batch,); targets (batch, target), padded on the right
        -> (batch, target, embedding): at each position the state that predicts the target there, from the targets before it."""
        source = self.encode(ids, lengths)
        opening = torch.full_like(targets[:, :1], CLS)
        return self.decode(torch.cat([opening, targets[:, :-1]], 1), source, self.initial_states(source))[0]

    def stacked(self) -> list[nn.Module]:
        return [*self.encoder, *self.decoder]

    def encode(self, ids: Tensor, lengths: Tensor) -> Source:
        """Encode source ids (batch, length), lengths (batch,)."""
        states = self.top(ids, lengths)
        ends = self.pool(states, lengths)
        if not self.attention:
            return Source(ends)
        padding = torch.arange(ids.shape[1], device=ids.device) >= lengths[:, None]
        return Source(ends, states, self.attention.key(states), padding[:, None])

    def initial_states(self, source: Source) -> list[Tensor]:
        """Return the states of the decoder's layers before the first token, each (batch, hidden) (section A.2.2 of the paper)."""
        states = self.bridge(source.ends).tanh().to(self.bridge.weight.dtype)  # in 16 bit the steps would accumulate rounding errors
        return list(states.chunk(self.num_layers, 1))

    def decode(self, ids: Tensor, source: Source, states: list[Tensor]) -> tuple[Tensor, list[Tensor], Tensor | None]:
        """Target tokens (batch, target) and the states before them -> the states that predict the next tokens
        (batch, target, embedding), the layers' states after them, and attention weights (batch, target, source) or None."""
        embedded = self.dropout(self.token_embedding(ids))
        if self.attention:
            x, contexts, weights = self._attend(embedded, source, states[0])
        else:
            contexts, weights = source.ends[:, None].expand(-1, ids.shape[1], -1), None
            x, _ = self.decoder[0](torch.cat([embedded, contexts], 2), states[0][None].contiguous())
        ends = [x[:, -1]]
        for layer, state in zip(self.decoder[1:], states[1:], strict=True):
            x, _ = layer(self.dropout(x), state[None].contiguous())
            ends.append(x[:, -1])
        # the deep output of section A.2.2: maxout over state, context and last token
        one, other = self.readout(self.dropout(torch.cat([x, contexts, embedded], 2))).chunk(2, 2)
        return torch.maximum(one, other), ends, weights

    def _attend(self, x: Tensor, source: Source, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Run the layer with attention: x (batch, target, embedding) -> states and contexts, each (batch, target, hidden), and attention
        weights (batch, target, source).

        The contribution of the tokens to the gates is computed for all tokens at once, before the loop over the states.
        """
        cell, states, contexts, weights = self.decoder[0], [], [], []
        token_weight, context_weight = cell.weight_ih_l0.split([x.shape[2], self.width], 1)
        for token_gates in linear(x, token_weight, cell.bias_ih_l0).unbind(1):
            scores = self.attention(state[:, None], source.keys)
            weights.append(scores.masked_fill(source.padding, -torch.inf).softmax(2))
            contexts.append((weights[-1] @ source.states)[:, 0])
            input_gates = token_gates + linear(contexts[-1], context_weight)
            states.append(gru_step(input_gates, linear(state, cell.weight_hh_l0, cell.bias_hh_l0), state))
            state = states[-1]
        return torch.stack(states, 1), torch.stack(contexts, 1), torch.cat(weights, 1)

    def logits(self, hidden: Tensor) -> Tensor:
        """(..., embedding) -> (..., vocab_size)."""
        return linear(hidden, (self.output_embedding or self.token_embedding).weight, self.output_bias)

    def layers(self, ids: Tensor, lengths: Tensor, segment_ids: Tensor | None = None) -> list[Tensor]:
        """Return all layers of the encoder. Raise SesameError if the embedding has another width."""
        if (size := self.token_embedding.embedding_dim) != self.width:
            raise SesameError(
                f"an embedding of {size} and layers of {self.width} can't be mixed: leave architecture.embedding_size out, or "
                "take a method and head that read the last layer (method full, head pooled or concat)"
            )
        return self._read(ids, lengths)

    def top(self, ids: Tensor, lengths: Tensor, segment_ids: Tensor | None = None) -> Tensor:
        return self._read(ids, lengths)[-1]

    def _read(self, ids: Tensor, lengths: Tensor) -> list[Tensor]:
        """Return the embedding and every layer's output, each (batch, length, its width)."""
        states = [self.token_embedding(ids)]
        for layer in self.encoder:
            states.append(layer(self.dropout(states[-1]), lengths))
        return states

    def pool(self, hidden: Tensor, lengths: Tensor) -> Tensor:
        """(batch, length, hidden) -> (batch, hidden): the last output of each direction."""
        forward, backward = hidden.chunk(2, 2)
        return torch.cat([forward[torch.arange(len(lengths), device=hidden.device), lengths - 1], backward[:, 0]], 1)


class BidirectionalGRU(nn.Module):
    """A forward and a backward GRU, whose outputs are concatenated."""

    def __init__(self, width: int, size: int):
        super().__init__()
        self.ahead, self.back = (nn.GRU(width, size // 2, batch_first=True) for _ in range(2))

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """x (batch, length, width), lengths (batch,) -> (batch, length, size)."""
        forward, _ = self.ahead(x)
        backward, _ = self.back(reverse(x, lengths))
        return torch.cat([forward, reverse(backward, lengths)], 2)


class Additive(nn.Module):
    """v tanh(W s + U h), for the decoder's state s and the source's state h (Bahdanau et al. 2015, section A.1.2)."""

    def __init__(self, size: int):
        super().__init__()
        self.query, self.key, self.score = (nn.Linear(size, out, bias=False) for out in (size, size, 1))

    def forward(self, state: Tensor, keys: Tensor) -> Tensor:
        """state (batch, 1, hidden), keys U h (batch, source, hidden) -> scores (batch, 1, source)."""
        return self.score((self.query(state) + keys).tanh()).transpose(1, 2)


class Dot(nn.Module):
    """s h (Luong et al. 2015, section 3.1)."""

    def __init__(self, size: int):
        super().__init__()
        self.key = nn.Identity()

    def forward(self, state: Tensor, keys: Tensor) -> Tensor:
        """The same shapes as in `Additive`."""
        return state @ keys.transpose(1, 2)


def gru_step(from_input: Tensor, from_state: Tensor, state: Tensor) -> Tensor:
    """Gate contributions of the input and of the state (batch, 3 * hidden), state (batch, hidden) -> the next state."""
    reset, update, new = from_input.chunk(3, 1)
    state_reset, state_update, state_new = from_state.chunk(3, 1)
    new = (new + (reset + state_reset).sigmoid() * state_new).tanh()
    return new + (update + state_update).sigmoid() * (state - new)


Model = RecurrentEncoderDecoder
