"""CANINE (Clark et al. 2022): characters by hashes of their code points, deep layers over every fourth, and back."""

import torch
from torch import Tensor, nn

from components.core.errors import SesameError
from components.models.canine.config import CanineArchitecture
from components.models.common.dropout import Dropout
from components.models.common.masked import MaskedLanguageModel
from components.models.common.positions import Positions
from components.models.common.transformer import TransformerBlock, initialise, length_mask, norm, plain
from components.text.tokenizer import CLS, MASK, PAD, SEP, SPECIALS, UNK, Tokenizer
from components.text.tokenizer.fast import FastTokenizer

PRIMES = (31, 43, 59, 61, 73, 97, 103, 113, 137, 149, 157, 173, 181, 193, 211, 223)
"""One for each hash function."""
CODE_POINTS = {PAD: 0, UNK: 0xFFFD, CLS: 0xE000, SEP: 0xE001, MASK: 0xE003}
"""Of the specials: in the private use area."""
BYTES = 0xE100
"""From here on those of a character that is no piece and comes as its bytes."""


def code_points(tokens: Tokenizer | FastTokenizer) -> Tensor:
    """Of every piece, (vocab_size,). Raises SesameError where one is more than a character."""
    if not isinstance(tokens, Tokenizer):  # an imported checkpoint's ids are code points
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
    """Ids (...) -> (..., width): a share of it from each hash of the character's code point (section 3.1)."""

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
        return torch.cat([table(own) for table, own in zip(self.tables, buckets.unbind(-1), strict=True)], -1)


class Canine(MaskedLanguageModel):
    """As published, but that what is predicted are characters: there is no subword to be asked for."""

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
        self.activation = plain(config.activation)
        self.local = TransformerBlock(config)
        self.down, self.down_norm = nn.Conv1d(size, size, rate, rate), norm(config)
        self.blocks = nn.ModuleList(TransformerBlock(config) for _ in range(config.num_layers))
        self.up, self.up_norm = nn.Conv1d(2 * size, size, rate), norm(config)
        self.last = TransformerBlock(config)
        self.add_heads(config, tokens.vocab_size if isinstance(tokens, Tokenizer) else 0, size)  # of all code points none is predicted
        initialise(self)

    def layers(self, ids: Tensor, lengths: Tensor, segment_ids: Tensor | None = None) -> list[Tensor]:
        """ids, segment_ids (batch, length); lengths (batch,) -> characters after the local layer, what each deep layer but the last makes
        of them, and the characters on top, each (batch, length, hidden). On top `[CLS]` is that of the deep layers, which is pooled."""
        length, rate = ids.shape[1], self.config.downsampling_rate
        # two groups of padding more: what convolutions read behind a text's last character is the same in every batch
        room = (0, -length % rate + 2 * rate)
        ids, segments = nn.functional.pad(ids, room), nn.functional.pad(torch.zeros_like(ids) if segment_ids is None else segment_ids, room)
        characters = self._characters(ids, lengths, segments)
        groups = self.activation(self.down(characters.transpose(1, 2)).transpose(1, 2))
        deep = self.down_norm(torch.cat([characters[:, :1], groups[:, :-1]], 1))  # [CLS] stands for itself
        starts = torch.arange(deep.shape[1], device=ids.device) * rate
        mask = (starts < lengths[:, None])[:, None, None]  # as in the authors' code: by the group of the same number
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
        """Embeddings through the local layer, (batch, length, hidden)."""
        (batch, length), width = ids.shape, min(self.config.local_width, ids.shape[1])
        places = torch.arange(length, device=ids.device)
        x = self.token_embedding(ids) + self.position_embedding(places.clamp(max=self.max_length - 1)) + self.segment_embedding(segments)
        x = self.dropout(self.embedding_norm(x))
        room = -length % width
        real = nn.functional.pad(places < lengths[:, None], (0, room)).reshape(-1, 1, 1, width)
        real = real | ~real.any(3, keepdim=True)  # of padding alone: it attends to itself, and nobody to it
        x = nn.functional.pad(x, (0, 0, 0, room)).reshape(-1, width, self.width)
        return self.local(x, self.positions, real).reshape(batch, length + room, self.width)[:, :length]


Model = Canine
