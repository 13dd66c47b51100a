"""Recurrent encoder-decoder with attention (Bahdanau et al. 2015), the translator before the Transformer."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from components.core.errors import SesameError
from components.models.common.dropout import Dropout
from components.models.common.turned import turned
from components.models.contract import LanguageModel
from components.models.recurrent_encoder_decoder.config import RecurrentEncoderDecoderArchitecture
from components.text.tokenizer import CLS, Tokenizer


class Source(NamedTuple):
    """What the decoder keeps of the texts that were read. Without attention only where each direction ends."""

    ends: Tensor  # (batch, hidden): of the direction ahead after the last token, of that back after the first
    states: Tensor | None = None  # (batch, source, hidden), the annotations of the paper
    keys: Tensor | None = None  # (batch, source, hidden): what the decoder's state is compared with
    padding: Tensor | None = None  # (batch, 1, source), True where there is no token

    def select(self, rows: Tensor) -> "Source":
        """These rows, in this order."""
        return Source(*(None if part is None else part[rows] for part in self))


class RecurrentEncoderDecoder(LanguageModel):
    """Layers of GRUs in two directions, and of GRUs ahead that write; one embedding for source and target.

    GRUs are torch's, whose reset gate stands behind the matrix and not before it (as cuDNN has it; the paper's section A.1.1).
    """

    stack = "encoder"
    embeddings = frozenset({"token_embedding"})

    def __init__(self, config: RecurrentEncoderDecoderArchitecture, tokens: Tokenizer):
        super().__init__()
        size, embedded = config.hidden_size, config.embedding_size or config.hidden_size
        self.config, self.width, self.num_layers, self.max_length = config, size, config.num_layers, config.max_length
        self.token_embedding = nn.Embedding(tokens.vocab_size, embedded)
        self.encoder = nn.ModuleList(BothWays(size if i else embedded, size) for i in range(config.num_layers))
        self.bridge = nn.Linear(size, config.num_layers * size)
        self.attention = {"additive": Additive, "dot": Dot}[config.attention](size) if config.attention != "none" else None
        self.decoder = nn.ModuleList(nn.GRU(size if i else embedded + size, size, batch_first=True) for i in range(config.num_layers))
        self.readout = nn.Linear(size + size + embedded, 2 * embedded)
        self.output_embedding = None if config.tie_word_embeddings else nn.Embedding(tokens.vocab_size, embedded)
        self.output_bias = nn.Parameter(torch.zeros(tokens.vocab_size))
        self.dropout = Dropout(config.dropout)
        for embedding in filter(None, (self.token_embedding, self.output_embedding)):
            nn.init.uniform_(embedding.weight, -0.1, 0.1)

    def forward(self, ids: Tensor, lengths: Tensor, targets: Tensor) -> Tensor:
        """Source ids (batch, source), lengths (batch,); targets (batch, target), padded on the right
        -> (batch, target, embedding): at each place what predicts the target there, from those before it."""
        source = self.encode(ids, lengths)
        opening = torch.full_like(targets[:, :1], CLS)
        return self.decode(torch.cat([opening, targets[:, :-1]], 1), source, self.begin(source))[0]

    def encode(self, ids: Tensor, lengths: Tensor) -> Source:
        """Source ids (batch, length), lengths (batch,) -> what the decoder keeps of them."""
        states = self.top(ids, lengths)
        ends = self.pool(states, lengths)
        if not self.attention:
            return Source(ends)
        padding = torch.arange(ids.shape[1], device=ids.device) >= lengths[:, None]
        return Source(ends, states, self.attention.key(states), padding[:, None])

    def begin(self, source: Source) -> list[Tensor]:
        """The states of the decoder's layers before the first token, each (batch, hidden) (the paper's section A.2.2)."""
        first = self.bridge(source.ends).tanh().to(self.bridge.weight.dtype)  # or the steps would add up in autocast's 16 bit
        return list(first.chunk(self.num_layers, 1))

    def decode(self, ids: Tensor, source: Source, states: list[Tensor]) -> tuple[Tensor, list[Tensor], Tensor | None]:
        """Tokens of the target (batch, target) that follow on what made the states -> what predicts the next ones
        (batch, target, embedding), the layers' states after them, and the weights of attention (batch, target, source), if there is any."""
        embedded = self.dropout(self.token_embedding(ids))
        if self.attention:
            x, contexts, weights = self._looking(embedded, source, states[0])
        else:
            contexts, weights = source.ends[:, None].expand(-1, ids.shape[1], -1), None
            x, _ = self.decoder[0](torch.cat([embedded, contexts], 2), states[0][None].contiguous())
        ends = [x[:, -1]]
        for layer, state in zip(self.decoder[1:], states[1:], strict=True):
            x, _ = layer(self.dropout(x), state[None].contiguous())
            ends.append(x[:, -1])
        # the deep output of section A.2.2: maxout over what the state, what was looked at and the last token say
        one, other = self.readout(self.dropout(torch.cat([x, contexts, embedded], 2))).chunk(2, 2)
        return torch.maximum(one, other), ends, weights

    def _looking(self, x: Tensor, source: Source, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The layer that looks: x (batch, target, embedding) -> its states and its contexts, each (batch, target, hidden), and the weights
        of the source's states in these (batch, target, source).

        A token's step waits for the state before it; its part of the gates does not, and is made for all tokens at once.
        """
        cell, states, contexts, looks = self.decoder[0], [], [], []
        by_token, by_context = cell.weight_ih_l0.split([x.shape[2], self.width], 1)
        for given in linear(x, by_token, cell.bias_ih_l0).unbind(1):
            scores = self.attention(state[:, None], source.keys)
            looks.append(scores.masked_fill(source.padding, -torch.inf).softmax(2))
            contexts.append((looks[-1] @ source.states)[:, 0])
            states.append(gru(given + linear(contexts[-1], by_context), linear(state, cell.weight_hh_l0, cell.bias_hh_l0), state))
            state = states[-1]
        return torch.stack(states, 1), torch.stack(contexts, 1), torch.cat(looks, 1)

    def logits(self, hidden: Tensor) -> Tensor:
        """(..., embedding) -> (..., vocab_size)."""
        return linear(hidden, (self.output_embedding or self.token_embedding).weight, self.output_bias)

    def layers(self, ids: Tensor, lengths: Tensor, segment_ids: Tensor | None = None) -> list[Tensor]:
        """As every model's, of the encoder. Raises SesameError where the embedding has another width."""
        if (embedded := self.token_embedding.embedding_dim) != self.width:
            raise SesameError(
                f"an embedding of {embedded} and layers of {self.width} can't be mixed: leave architecture.embedding_size out, or "
                "take a method and head that read the last layer (method full, head pooled or concat)"
            )
        return self._read(ids, lengths)

    def top(self, ids: Tensor, lengths: Tensor, segment_ids: Tensor | None = None) -> Tensor:
        return self._read(ids, lengths)[-1]

    def _read(self, ids: Tensor, lengths: Tensor) -> list[Tensor]:
        """The embedding and every layer's output, each (batch, length, its width)."""
        states = [self.token_embedding(ids)]
        for layer in self.encoder:
            states.append(layer(self.dropout(states[-1]), lengths))
        return states

    def pool(self, hidden: Tensor, lengths: Tensor) -> Tensor:
        """(batch, length, hidden) -> (batch, hidden): where each direction has read the whole text."""
        ahead, back = hidden.chunk(2, 2)
        return torch.cat([ahead[torch.arange(len(lengths), device=hidden.device), lengths - 1], back[:, 0]], 1)


class BothWays(nn.Module):
    """A GRU from the beginning and one from the end, side by side."""

    def __init__(self, width: int, size: int):
        super().__init__()
        self.ahead, self.back = (nn.GRU(width, size // 2, batch_first=True) for _ in range(2))

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """x (batch, length, width), lengths (batch,) -> (batch, length, size)."""
        ahead, _ = self.ahead(x)
        back, _ = self.back(turned(x, lengths))
        return torch.cat([ahead, turned(back, lengths)], 2)


class Additive(nn.Module):
    """v tanh(W s + U h), of the decoder's state s and one of the source h (Bahdanau et al. 2015, section A.1.2)."""

    def __init__(self, size: int):
        super().__init__()
        self.query, self.key, self.score = (nn.Linear(size, out, bias=False) for out in (size, size, 1))

    def forward(self, state: Tensor, keys: Tensor) -> Tensor:
        """state (batch, 1, hidden), keys (batch, source, hidden), which are U h -> (batch, 1, source)."""
        return self.score((self.query(state) + keys).tanh()).transpose(1, 2)


class Dot(nn.Module):
    """s h (Luong et al. 2015, section 3.1)."""

    def __init__(self, size: int):
        super().__init__()
        self.key = nn.Identity()

    def forward(self, state: Tensor, keys: Tensor) -> Tensor:
        """As `Additive`."""
        return state @ keys.transpose(1, 2)


def gru(given: Tensor, carried: Tensor, state: Tensor) -> Tensor:
    """A step: what the input and what the state say to the gates (batch, 3 * hidden), the state (batch, hidden) -> the next state."""
    reset, update, new = given.chunk(3, 1)
    own_reset, own_update, own_new = carried.chunk(3, 1)
    new = (new + (reset + own_reset).sigmoid() * own_new).tanh()
    return new + (update + own_update).sigmoid() * (state - new)


Model = RecurrentEncoderDecoder
