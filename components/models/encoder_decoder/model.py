"""The encoder-decoder Transformer (Vaswani et al. 2017), with the settings that make it BART, Marian or T5."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from components.core.errors import SesameError
from components.models.common.config import TransformerArchitecture
from components.models.common.dropout import Dropout
from components.models.common.heads import mean_over_tokens
from components.models.common.positions import Positions
from components.models.common.transformer import ACTIVATIONS, Gated, attention, initialise, length_mask, norm
from components.models.contract import LanguageModel
from components.models.encoder_decoder.config import EncoderDecoderArchitecture
from components.text.tokenizer import Tokenizer

MORE_ACTIVATIONS = {"silu": nn.SiLU, "geglu_tanh": lambda: Gated(nn.GELU("tanh"))}
"""Activations that the other families do not have."""


class EncoderDecoder(LanguageModel):
    """One embedding for source, target and output. BART by default: post-LN, learned positions, a norm over the embedding."""

    embeddings = frozenset({"token_embedding", "output_embedding"})
    low_rank = ("query", "key_value")

    def __init__(self, config: EncoderDecoderArchitecture, tokens: Tokenizer):
        super().__init__()
        size, self.config = config.hidden_size, config
        self.encoder_layers, self.decoder_layers = config.num_layers, config.decoder_layers or config.num_layers
        self.num_layers = self.encoder_layers + (self.decoder_layers if config.task_states == "both" else 0)
        self.width, self.max_length = size, config.max_length
        self.start = config.decoder_start_token_id
        self.forced_first, self.forced_end = config.forced_bos_token_id, config.forced_eos_token_id
        for setting in ("decoder_start_token_id", "forced_bos_token_id", "forced_eos_token_id"):
            token = getattr(config, setting)
            if token is not None and token >= tokens.vocab_size:
                raise SesameError(f"{setting} is {token}, and the tokenizer has {tokens.vocab_size:,} tokens, from 0 on")
        self.token_embedding = nn.Embedding(tokens.vocab_size, size)
        self.encoder = Stack(config, self.encoder_layers, decodes=False)
        self.decoder = Stack(config, self.decoder_layers, decodes=True)
        self.output_embedding = None if config.tie_word_embeddings else nn.Embedding(tokens.vocab_size, size)
        self.output_bias = nn.Parameter(torch.zeros(tokens.vocab_size)) if config.output_bias else None
        initialise(self)
        if config.scale_embedding:  # a standard deviation of 1 after scaling, similar to the sinusoids
            nn.init.normal_(self.token_embedding.weight, std=size**-0.5)

    def embed(self, ids: Tensor) -> Tensor:
        """(batch, length) -> (batch, length, hidden), without positions."""
        scale = math.sqrt(self.width) if self.config.scale_embedding else 1.0
        return self.token_embedding(ids) * scale

    def encode(self, ids: Tensor, lengths: Tensor) -> list[Tensor]:
        """Source ids (batch, length), lengths (batch,) -> the embedding and every layer's output, each (batch, length, hidden)."""
        return self.encoder(self.embed(ids), length_mask(lengths, ids.shape[1]))

    def decode(self, ids: Tensor, memory: Tensor, mask: Tensor | None) -> list[Tensor]:
        """Target ids (batch, target), memory (batch, source, hidden), the encoder's last output, mask (batch, 1, 1, source), True for
        real tokens -> like `encode`, each (batch, target, hidden). Self-attention is causal."""
        return self.decoder(self.embed(ids), None, memory, mask)

    def forward(self, ids: Tensor, lengths: Tensor, targets: Tensor) -> Tensor:
        """Source ids (batch, source), lengths (batch,); targets (batch, target), padded on the right
        -> (batch, target, hidden): at each position the state that predicts the target there, from the targets before it."""
        opening = torch.full_like(targets[:, :1], self.start)
        memory = self.encode(ids, lengths)[-1]
        return self.decode(torch.cat([opening, targets[:, :-1]], 1), memory, length_mask(lengths, ids.shape[1]))[-1]

    def layers(self, ids: Tensor, lengths: Tensor, segment_ids: Tensor | None = None) -> list[Tensor]:
        states = self.encode(ids, lengths)
        if self.config.task_states == "encoder":
            return states
        opening = torch.full_like(ids[:, :1], self.start)
        mask = length_mask(lengths, ids.shape[1])
        return states + self.decode(torch.cat([opening, ids[:, :-1]], 1), states[-1], mask)[1:]

    def logits(self, hidden: Tensor) -> Tensor:
        return linear(hidden, (self.output_embedding or self.token_embedding).weight, self.output_bias)

    def pool(self, hidden: Tensor, lengths: Tensor) -> Tensor:
        if self.config.task_states == "both":  # the decoder's last state attends to the complete text
            return hidden[torch.arange(len(lengths), device=hidden.device), lengths - 1]
        return mean_over_tokens(hidden, lengths)

    def sublayers(self) -> list[tuple[nn.Module, str]]:
        stacks = (self.encoder, self.decoder) if self.config.task_states == "both" else (self.encoder,)
        return [projection for stack in stacks for block in stack.blocks for projection in block.sublayers()]

    def depth(self, parameter: str) -> int:
        """Return the depth: the decoder's layers are above the encoder's if a task reads both, else above all layers that it reads."""
        if parameter.startswith("encoder.blocks.") or parameter.partition(".")[0] in self.embeddings:
            return super().depth(parameter)
        if parameter.startswith("encoder.") and "final_norm" not in parameter:
            return 0  # positions and the norm over the embedding
        if parameter.startswith("decoder.blocks.") and self.config.task_states == "both":
            return self.encoder_layers + super().depth(parameter)
        if parameter.startswith("encoder."):
            return self.encoder_layers
        return 0 if self.config.task_states == "both" and "final_norm" not in parameter else self.num_layers + 1


class Stack(nn.Module):
    """Layers over embedded tokens."""

    def __init__(self, config: EncoderDecoderArchitecture, num_layers: int, decodes: bool):
        super().__init__()
        size = config.hidden_size
        self.kind = config.positions
        self.position_embedding = nn.Embedding(config.max_length, size) if self.kind == "learned" else None
        self.positions = Positions(config, causal=decodes)
        if self.kind == "sinusoidal":
            self.register_buffer("table", sinusoids(config), persistent=False)
        self.embedding_norm = norm(config) if config.embedding_norm else nn.Identity()
        self.dropout = Dropout(config.dropout)
        self.blocks = nn.ModuleList(Layer(config, decodes) for _ in range(num_layers))
        self.final_norm = norm(config) if config.norm_first else nn.Identity()

    def embed_positions(self, x: Tensor, first: int = 0) -> Tensor:
        """Add positions first, first + 1, ... to embedded tokens (batch, length, hidden)."""
        if self.kind == "learned":
            x = x + self.position_embedding.weight[first : first + x.shape[1]]
        elif self.kind == "sinusoidal":
            x = x + self.table[first : first + x.shape[1]]
        return self.dropout(self.embedding_norm(x))

    def forward(self, x: Tensor, mask: Tensor | None, memory: Tensor | None = None, memory_mask: Tensor | None = None) -> list[Tensor]:
        """x (batch, length, hidden) -> the input of the first layer and the output of each, all of x's shape."""
        states = [self.embed_positions(x)]
        mask = self.positions.mask(mask, x.shape[1])
        for block in self.blocks:
            states.append(block(states[-1], self.positions, mask, memory, memory_mask))
        states[-1] = self.final_norm(states[-1])
        return states


class Layer(nn.Module):
    """Self-attention, in a decoder cross-attention to the encoder's output, and a feed-forward network, with residual connections."""

    def __init__(self, config: EncoderDecoderArchitecture, decodes: bool):
        super().__init__()
        self.norm_first, self.causal = config.norm_first, decodes
        self.attention, self.attention_norm = Attention(config), norm(config)
        self.cross_attention, self.cross_attention_norm = (Attention(config), norm(config)) if decodes else (None, None)
        self.feed_forward, self.feed_forward_norm = FeedForward(config), norm(config)
        self.dropout = Dropout(config.dropout)

    def forward(
        self, x: Tensor, positions: Positions, mask: Tensor | None, memory: Tensor | None = None, memory_mask: Tensor | None = None
    ) -> Tensor:  # fmt: skip
        """x (batch, length, hidden), memory (batch, source, hidden) -> x's shape; masks as in `attention`."""
        x = self.residual(x, self.attention_norm, lambda x: self.attention(x, x, mask, self.causal and mask is None, positions))
        if self.cross_attention:
            x = self.residual(x, self.cross_attention_norm, lambda x: self.cross_attention(x, memory, memory_mask))
        return self.residual(x, self.feed_forward_norm, self.feed_forward)

    def residual(self, x: Tensor, norm: nn.Module, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        if self.norm_first:
            return x + self.dropout(sublayer(norm(x)))
        return norm(x + self.dropout(sublayer(x)))

    def sublayers(self) -> list[tuple[nn.Module, str]]:
        cross = [(self.cross_attention, "output")] if self.cross_attention else []
        return [(self.attention, "output"), *cross, (self.feed_forward, "output")]


class Attention(nn.Module):
    """Multi-head self-attention or cross-attention."""

    def __init__(self, config: EncoderDecoderArchitecture):
        super().__init__()
        self.num_heads, self.probability = config.num_heads, config.dropout
        self.query = nn.Linear(config.hidden_size, config.inner_size, config.biases)
        self.key_value = nn.Linear(config.hidden_size, 2 * config.inner_size, config.biases)
        self.output = nn.Linear(config.inner_size, config.hidden_size, config.biases)

    def heads(self, x: Tensor) -> Tensor:
        """(batch, length, heads * head) -> (batch, heads, length, head)."""
        return x.unflatten(2, (self.num_heads, -1)).transpose(1, 2)

    def keys_values(self, memory: Tensor, positions: Positions | None = None) -> tuple[Tensor, Tensor]:
        """memory (batch, source, hidden) -> keys and values, each (batch, heads, source, head)."""
        key, value = self.key_value(memory).chunk(2, 2)
        key = self.heads(key)
        return positions.rotate(key) if positions else key, self.heads(value)

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor | None, causal: bool = False, positions: Positions | None = None) -> Tensor:
        """x (batch, length, hidden) -> the same shape; mask (batch, 1 or heads, 1 or length, source), True where a key is visible, or
        added to the scores. Only self-attention has `positions`."""
        query = self.heads(self.query(x))
        query = positions.rotate(query) if positions else query
        key, value = self.keys_values(memory, positions)
        if mask is not None and mask.dtype != torch.bool:
            mask = mask.to(query.dtype)
        attended = attention(query, key, value, mask, causal, self.probability if self.training else 0.0)
        return self.output(attended.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    """Linear, activation, dropout, linear; the first matrix of a gated activation has gate and value."""

    def __init__(self, config: EncoderDecoderArchitecture):
        super().__init__()
        self.activation = (ACTIVATIONS | MORE_ACTIVATIONS)[config.activation]()
        inner = config.intermediate_size * (2 if isinstance(self.activation, Gated) else 1)
        self.inner = nn.Linear(config.hidden_size, inner, config.biases)
        self.dropout = Dropout(config.dropout)
        self.output = nn.Linear(config.intermediate_size, config.hidden_size, config.biases)

    def forward(self, x: Tensor) -> Tensor:
        """(..., hidden) -> the same shape."""
        return self.output(self.dropout(self.activation(self.inner(x))))


def sinusoids(config: TransformerArchitecture) -> Tensor:
    """Return sinusoidal positions (max_length, hidden): all sines, then all cosines, as in the authors' code and Marian.

    They have the paper's scale if embeddings are scaled, else that of learned positions initially.
    """
    angles = torch.arange(config.max_length)[:, None] / 10_000 ** (torch.arange(0, config.hidden_size, 2) / config.hidden_size)
    table = torch.cat([angles.sin(), angles.cos()], 1)[:, : config.hidden_size]
    return table if config.scale_embedding else table * 0.02 * math.sqrt(2)


Model = EncoderDecoder
