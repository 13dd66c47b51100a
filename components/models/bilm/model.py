"""ELMo (Peters et al. 2018): a forward and a backward LSTM language model over character convolutions.

The two LMs are separate and share only the token vectors and the softmax. Tokens are BPE subwords instead of words, so that the softmax
covers every text without `<unk>`, and bits per byte compare with the other models.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, pad, relu

from components.models.bilm.config import BiLMArchitecture
from components.models.common.dropout import Dropout
from components.models.common.reverse import reverse
from components.models.contract import LanguageModel
from components.text.tokenizer import SPECIALS, Tokenizer

CHARACTERS = 1 + 256 + len(SPECIALS)
TOKENS_MULTIPLE = 64
State = tuple[Tensor, Tensor]


class CharacterCNN(nn.Module):
    """Token vectors from the bytes of a token: convolutions, max over time, highway layers, projection (Kim et al. 2016)."""

    def __init__(self, config: BiLMArchitecture, tokens: Tokenizer):
        super().__init__()
        widest = max(width for width, _ in config.char_filters)
        self.register_buffer("characters", torch.from_numpy(tokens.characters(shortest=widest)))  # (vocab_size, bytes)
        self.embedding = nn.Embedding(CHARACTERS, config.char_embedding_size, padding_idx=0)
        self.convolutions = nn.ModuleList(nn.Conv1d(config.char_embedding_size, n, width) for width, n in config.char_filters)
        size = sum(n for _, n in config.char_filters)
        self.highways = nn.ModuleList(nn.Linear(size, 2 * size) for _ in range(config.num_highway))
        for highway in self.highways:
            nn.init.constant_(highway.bias[size:], 1.0)  # carries its input initially, as in the paper's code
        self.projection = nn.Linear(size, config.projection_size)

    def forward(self, ids: Tensor) -> Tensor:
        """ids (batch, length) -> (batch, length, projection_size). Each different token is computed once."""
        unique, inverse = torch.unique(ids, return_inverse=True)
        # to one of few sizes, as in `padded_layout`: a CPU compiles a convolution for each number of tokens
        unique = pad(unique, (0, -len(unique) % TOKENS_MULTIPLE))
        x = self.embedding(self.characters[unique]).transpose(1, 2)  # (tokens, char_embedding_size, bytes)
        x = torch.cat([relu(convolution(x).amax(2)) for convolution in self.convolutions], 1)
        for highway in self.highways:
            candidate, carry = highway(x).chunk(2, 1)
            carry = carry.sigmoid()
            x = carry * x + (1 - carry) * relu(candidate)
        return self.projection(x)[inverse]


class Direction(nn.Module):
    """One LSTM language model: LSTM layers with projections and residual connections."""

    def __init__(self, config: BiLMArchitecture):
        super().__init__()
        size = config.projection_size
        self.lstms = nn.ModuleList(nn.LSTM(size, config.hidden_size, proj_size=size, batch_first=True) for _ in range(config.num_layers))
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, states: list[State] | None = None) -> tuple[list[Tensor], list[State]]:
        """x (batch, length, projection) -> every layer's output, of the same shape, and the LSTMs' states for the next window."""
        outputs, new_states = [], []
        for i, lstm in enumerate(self.lstms):
            y, state = lstm(self.dropout(x), states[i] if states else None)
            x = y + x if i else y
            outputs.append(x)
            new_states.append(state)
        return outputs, new_states


class BiLM(LanguageModel):
    """Two language models. `layers` starts with a zero state, so that a sentence always has the same vectors."""

    stack = "lstms"
    embeddings = frozenset({"token_vectors"})
    embedding = "token_vectors"

    def __init__(self, config: BiLMArchitecture, tokens: Tokenizer):
        super().__init__()
        self.width, self.num_layers, self.max_length = 2 * config.projection_size, config.num_layers, config.max_length
        self.token_vectors = CharacterCNN(config, tokens)
        self.forward_lm, self.backward_lm = Direction(config), Direction(config)
        self.dropout = Dropout(config.dropout)
        self.softmax = nn.Linear(config.projection_size, tokens.vocab_size)
        nn.init.normal_(self.softmax.weight, std=config.projection_size**-0.5)
        nn.init.zeros_(self.softmax.bias)

    def forward(
        self, forward_ids: Tensor, backward_ids: Tensor, states: tuple[list[State], list[State]] | None = None
    ) -> tuple[Tensor, Tensor, tuple[list[State], list[State]]]:
        """ids (batch, length) of a text and of a reversed text -> last layer of each direction (batch, length, projection), states."""
        forward_states, backward_states = states or (None, None)
        forward_vectors, backward_vectors = self.token_vectors(torch.cat([forward_ids, backward_ids])).chunk(2)
        forward, forward_states = self.forward_lm(forward_vectors, forward_states)
        backward, backward_states = self.backward_lm(backward_vectors, backward_states)
        return forward[-1], backward[-1], (forward_states, backward_states)

    def logits(self, hidden: Tensor) -> Tensor:
        """(..., projection_size) of one direction -> (..., vocab_size)."""
        return linear(self.dropout(hidden), self.softmax.weight, self.softmax.bias)

    def layers(self, ids: Tensor, lengths: Tensor, segment_ids: Tensor | None = None) -> list[Tensor]:
        """Return layers of width 2 * projection_size; the embedding is the token vector twice."""
        x = self.token_vectors(ids)
        forward, _ = self.forward_lm(x)
        backward, _ = self.backward_lm(reverse(x, lengths))
        return [torch.cat([x, x], 2)] + [torch.cat([f, reverse(b, lengths)], 2) for f, b in zip(forward, backward, strict=True)]

    def pool(self, hidden: Tensor, lengths: Tensor) -> Tensor:
        """(batch, length, 2 * projection_size) -> (batch, 2 * projection_size): the last output of each direction."""
        forward, backward = hidden.chunk(2, 2)
        return torch.cat([forward[torch.arange(len(lengths), device=hidden.device), lengths - 1], backward[:, 0]], 1)


Model = BiLM
