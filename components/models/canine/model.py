"""CANINE (Clark et al. 2022): hashed embeddings of characters, deep layers over a downsampled sequence, and upsampling."""

import torch
from torch import Tensor, nn

from components.core.errors import SesameError
from components.models.canine.config import CanineArchitecture
from components.models.common.dropout import Dropout
from components.models.common.masked import MaskedLanguageModel
from components.models.common.positions import Positions
from components.models.common.transformer import TransformerBlock, initialise, length_mask, norm, ungated
from components.text.tokenizer import CLS, MASK, PAD, SEP, SPECIALS, UNK, Tokenizer
from components.text.tokenizer.fast import FastTokenizer

PRIMES = (31, 43, 59, 61, 73, 97, 103, 113, 137, 149, 157, 173, 181, 193, 211, 223)
"""A prime for each hash function."""
CODE_POINTS = {PAD: 0, UNK: 0xFFFD, CLS: 0xE000, SEP: 0xE001, MASK: 0xE003}
"""Special tokens -> code points, in the private use area."""
BYTES = 0xE100
"""The first code point for the bytes of characters that are not in the vocabulary."""


def code_points(tokens: Tokenizer | FastTokenizer) -> Tensor:
    """Return the code point of every token, (vocab_size,). Raise SesameError if one has several characters."""
    if not isinstance(tokens, Tokenizer):  # the ids of an imported checkpoint are code points
        return torch.arange(tokens.vocab_size)
    points = [CODE_POINTS[i] for i in range(len(SPECIALS))]
    for i in range(len(SPECIALS), tokens.vocab_size):
        piece = tokens.pieces[i]
        if tokens.falls_back(i):
            points.append(BYTES + piece[0])
            continue
        if len(character := piece.decode(errors="replace")) != 1:
            raise SesameError(f"architecture canine reads characters, and its tokenizer has the piece {character!r}; take kind: characters")
        points.append(ord(character))
    return torch.tensor(points)


class HashedEmbedding(nn.Module):
    """Ids (...) -> (..., width): each hash of a character's code point determines a share of its vector (section 3.1)."""

    def __init__(self, config: CanineArchitecture, points: Tensor):
        super().__init__()
        self.num_embeddings, self.embedding_dim = len(points), config.hidden_size
        primes = torch.tensor([PRIMES[i % len(PRIMES)] + i // len(PRIMES) for i in range(config.num_hashes)])
        self.register_buffer("buckets", (points[:, None] + 1) * primes % config.num_buckets, persistent=False)  # (vocab_size, hashes)
        self.tables = nn.ModuleList(
            nn.Embedding(config.num_buckets, config.hidden_size // config.num_hashes) for _ in range(config.num_hashes)
        )

    def forward(self, ids: Tensor) -> Tensor:
        buckets = nn.functional.embedding(ids, self.buckets)
        return torch.cat([table(of_hash) for table, of_hash in zip(self.tables, buckets.unbind(-1), strict=True)], -1)


class Canine(MaskedLanguageModel):
    """As published, except that it predicts characters."""

    embeddings = frozenset({"token_embedding", "position_embedding", "segment_embedding", "embedding_norm", "local", "down", "down_norm"})
    low_rank = ("query_key_value",)

    def __init__(self, config: CanineArchitecture, tokens: Tokenizer | FastTokenizer):
        super().__init__()
        self.config, size, rate = config, config.hidden_size, config.downsampling_rate
        self.width, self.num_layers, self.max_length = size, config.num_layers, config.max_length
        self.token_embedding = HashedEmbedding(config, code_points(tokens))
        self.position_embedding = nn.Embedding(config.max_length, size)
        self.segment_embedding = nn.Embedding(config.type_vocab_size, size)
        self.embedding_norm = norm(config)
        self.dropout = Dropout(config.dropout)
        self.positions = Positions(config, causal=False)
        self.activation = ungated(config.activation)
        self.local = TransformerBlock(config)
        self.down, self.down_norm = nn.Conv1d(size, size, rate, rate), norm(config)
        self.blocks = nn.ModuleList(TransformerBlock(config) for _ in range(config.num_layers))
        self.up, self.up_norm = nn.Conv1d(2 * size, size, rate), norm(config)
        self.last = TransformerBlock(config)
        self.add_heads(config, tokens.vocab_size if isinstance(tokens, Tokenizer) else 0, size)  # an imported model predicts nothing
        initialise(self)

    def layers(self, ids: Tensor, lengths: Tensor, segment_ids: Tensor | None = None) -> list[Tensor]:
        """ids, segment_ids (batch, length); lengths (batch,) -> (batch, length, hidden) each: the characters after the local layer, the
        output of each deep layer but the last for them, and the top layer. `[CLS]` of the top layer is that of the deep layers."""
        length, rate = ids.shape[1], self.config.downsampling_rate
        # two more groups of padding, so that the convolutions see the same after the last character in every batch
        room = (0, -length % rate + 2 * rate)
        segments = nn.functional.pad(torch.zeros_like(ids) if segment_ids is None else segment_ids, room)
        ids = nn.functional.pad(ids, room)
        characters = self._characters(ids, lengths, segments)
        groups = self.activation(self.down(characters.transpose(1, 2)).transpose(1, 2))
        deep = self.down_norm(torch.cat([characters[:, :1], groups[:, :-1]], 1))  # [CLS] is a group of its own
        starts = torch.arange(deep.shape[1], device=ids.device) * rate
        mask = (starts < lengths[:, None])[:, None, None]  # as in the authors' code: of the group with the same number
        states = [characters]
        for block in self.blocks:
            deep = block(deep, self.positions, mask)
            states.append(deep[:, 1:].repeat_interleave(rate, 1))
        both = torch.cat([characters[:, :-rate], states.pop()], 2)[:, : length + rate].transpose(1, 2)
        both = nn.functional.pad(both, ((rate - 1) // 2, 0))
        x = self.dropout(self.up_norm(self.activation(self.up(both).transpose(1, 2))))[:, :length]
        top = self.last(x, self.positions, length_mask(lengths, length))
        return [*(state[:, :length] for state in states), torch.cat([deep[:, :1], top[:, 1:]], 1)]

    def _characters(self, ids: Tensor, lengths: Tensor, segments: Tensor) -> Tensor:
        """Return the output of the local layer, (batch, length, hidden)."""
        (batch, length), width = ids.shape, min(self.config.local_width, ids.shape[1])
        positions = torch.arange(length, device=ids.device)
        x = self.token_embedding(ids) + self.position_embedding(positions.clamp(max=self.max_length - 1)) + self.segment_embedding(segments)
        x = self.dropout(self.embedding_norm(x))
        room = -length % width
        real = nn.functional.pad(positions < lengths[:, None], (0, room)).reshape(-1, 1, 1, width)
        x = nn.functional.pad(x, (0, 0, 0, room)).reshape(-1, width, self.width)
        # The convolution upwards reads the first positions of a block of padding. Its states are the same however wide the
        # batch is: zeros that attend to each other.
        empty = ~real.any(3, keepdim=True)
        x = x.masked_fill(empty[:, 0], 0)
        return self.local(x, self.positions, real | empty).reshape(batch, length + room, self.width)[:, :length]


Model = Canine
