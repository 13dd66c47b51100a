"""The Vision Transformer (Dosovitskiy et al. 2021, section 3.1), with a vector for each colour where it has the colour's
value."""

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from components.models.common.dropout import Dropout
from components.models.common.masked import MaskedLanguageModel
from components.models.common.positions import Positions
from components.models.common.transformer import TransformerBlock, initialise, length_mask, norm
from components.models.patch_encoder.config import PatchEncoderArchitecture
from components.text.tokenizer import PAD, Tokenizer


class PatchEncoder(MaskedLanguageModel):
    """Layers over `[CLS]` and patches. Each pixel is predicted from its patch (appendix B.1.2, where three bits of each
    are)."""

    embeddings = frozenset({
        "token_embedding", "patch_projection", "position_embedding", "positions", "output_embedding",
    })  # fmt: skip
    low_rank = ("query_key_value",)

    def __init__(self, config: PatchEncoderArchitecture, tokens: Tokenizer):
        super().__init__()
        self.config, size, below, patch = config, config.hidden_size, config.embedding_size, config.patch_tokens
        self.width, self.num_layers, self.max_length = size, config.num_layers, config.max_length
        self.token_embedding = nn.Embedding(tokens.vocab_size, below)
        self.patch_projection = nn.Linear(patch * below, size)
        patches = 1 + -(-(config.max_length - 1) // patch)  # [CLS] is one
        self.position_embedding = nn.Embedding(patches, size) if config.positions == "learned" else None
        self.positions = Positions(config, causal=False)
        self.dropout = Dropout(config.dropout)
        self.blocks = nn.ModuleList(TransformerBlock(config) for _ in range(config.num_layers))
        self.final_norm = norm(config) if config.norm_first else nn.Identity()
        self.pixels = nn.Linear(size, patch * below)
        self.pixel_projection = nn.Linear(below, size)
        self.add_heads(config, tokens.vocab_size, below)
        initialise(self)
        # the sum over a patch as large as a position: with 0.02, of a product of two small matrices, the first steps would
        # see no pixel
        nn.init.normal_(self.patch_projection.weight, std=(patch * below) ** -0.5)

    def forward(self, ids: Tensor, lengths: Tensor, segment_ids: Tensor | None = None) -> Tensor:
        """-> (batch, length, hidden)."""
        return self._of_pixels(self._of_patches(ids, lengths)[-1])[:, : ids.shape[1]]

    def layers(self, ids: Tensor, lengths: Tensor, segment_ids: Tensor | None = None) -> list[Tensor]:
        """ids (batch, length); lengths (batch,) -> the embedding and each layer's output, (batch, length, hidden): of
        `[CLS]`, and for each pixel the state of its patch; the last is the pixel's own, from which it is predicted."""
        *states, top = self._of_patches(ids, lengths)
        length, patch = ids.shape[1], self.config.patch_tokens
        below = [state.repeat_interleave(patch, 1)[:, patch - 1 :][:, :length] for state in states]
        return [*below, self._of_pixels(top)[:, :length]]

    def _of_patches(self, ids: Tensor, lengths: Tensor) -> list[Tensor]:
        """Return the embedding and each layer's output of `[CLS]` and the patches, (batch, 1 + patches, hidden)."""
        patch = self.config.patch_tokens
        room = -(ids.shape[1] - 1) % patch
        # [CLS] closes a patch of padding, and the first pixel opens the next one
        ids = pad(ids, (patch - 1, room), value=PAD)
        x = self.patch_projection(self.token_embedding(ids).unflatten(1, (-1, patch)).flatten(2))
        positions = torch.arange(x.shape[1], device=ids.device)
        x = self.positions.add(x, positions)
        if self.position_embedding is not None:
            x = x + self.position_embedding(positions)
        states = [self.dropout(x)]
        patches = 1 + (lengths - 2 + patch) // patch  # any with a token
        mask = self.positions.mask(length_mask(patches, x.shape[1]), x.shape[1])
        for block in self.blocks:
            states.append(block(states[-1], self.positions, mask))
        states[-1] = self.final_norm(states[-1])
        return states

    def _of_pixels(self, patches: Tensor) -> Tensor:
        """The last layer (batch, 1 + patches, hidden) -> (batch, 1 + pixels, hidden); `[CLS]` stays as it is."""
        pixels = self.pixels(patches[:, 1:]).unflatten(2, (self.config.patch_tokens, -1)).flatten(1, 2)
        return torch.cat([patches[:, :1], self.pixel_projection(pixels)], 1)


Model = PatchEncoder
