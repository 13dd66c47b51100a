"""Attention weights of any model, between tokens and between words.

Models pass queries and keys to a function of torch that does not return the weights. A torch function mode intercepts
each call during a forward pass and computes the weights, so that the model families need no code for it.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot, scaled_dot_product_attention
from torch.overrides import TorchFunctionMode

from components.core.errors import SesameError
from components.evaluations import treebanks
from components.evaluations.inference import device_of, inference
from components.models.contract import LanguageModel

MAX_WEIGHTS = 2**18
"""Float32 weights of one head in memory at once: a batch of long texts is split."""


class Recorder(TorchFunctionMode):
    """Records the weights of all attention that is computed while it is entered."""

    def __init__(self):
        super().__init__()
        self.weights: list[Tensor] = []
        """For each call (batch, heads, queries, keys) float32, before dropout."""

    def __torch_function__(self, function: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if function is scaled_dot_product_attention:
            self.weights.append(_weights(*args, **kwargs))
        result = function(*args, **kwargs)
        # short texts in bf16 on a CPU do not use that function, see `components.models.common.transformer.attention`
        if function is Tensor.softmax and result.dim() == 4:
            self.weights.append(result.float())
        return result


def _weights(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None,
) -> Tensor:  # fmt: skip
    """The weights of torch's function with the same arguments, in float32."""
    scores = query.float() @ key.float().transpose(-2, -1) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -torch.inf) if attn_mask.dtype == torch.bool else scores + attn_mask
    return scores.softmax(-1)


def token_attention(model: LanguageModel, ids: Tensor, lengths: Tensor, name: str) -> list[Tensor]:
    """The self-attention of each layer, (batch, heads, length, length) float32: row i is the distribution of token i. For
    an encoder-decoder it is that of the encoder.

    ids (batch, length), padded on the right, lengths (batch,). Rows of padding are undefined. `name` is for errors:
    raises SesameError for a model without attention, and for one that does not attend from token to token.
    """
    forward = model.encode if model.reads == "source_then_target" else model.layers
    with inference(model), Recorder() as recorder:
        forward(ids, lengths)
    if not recorder.weights:
        raise SesameError(f"{name} has no attention between tokens: use a Transformer, such as BERT or GPT")
    expected = (len(ids), ids.shape[1], ids.shape[1])
    if any((weights.shape[0], *weights.shape[2:]) != expected for weights in recorder.weights):
        raise SesameError(f"{name} attends between groups of tokens, as CANINE does, not between words")
    return recorder.weights


def sentence_attention(model: LanguageModel, encoded: treebanks.EncodedSentences, name: str) -> Iterator[tuple[int, list[Tensor]]]:
    """The index of each sentence that fits, in ascending order of length, and its attention in each layer, (heads, tokens,
    tokens) float32. Raises SesameError as `token_attention`."""
    device = device_of(model)
    for some, ids, lengths in treebanks.batches(encoded):
        size = max(1, MAX_WEIGHTS // ids.shape[1] ** 2)
        for start in range(0, len(some), size):
            chunk = slice(start, start + size)
            layers = token_attention(model, ids[chunk].to(device), lengths[chunk].to(device), name)
            for row, i in enumerate(some[chunk]):
                tokens = len(encoded.ids[i])
                yield i, [layer[row, :, :tokens, :tokens].cpu() for layer in layers]


def membership(words: Sequence[int]) -> Tensor:
    """The index of each token's word from 0, -1 for none -> (tokens, words), 1 where a token belongs to a word."""
    return one_hot(torch.tensor(words) + 1)[:, 1:].float()


def word_attention(weights: Tensor, member: Tensor) -> Tensor:
    """(..., tokens, tokens) and (tokens, words) -> (..., words, words): the sum over the tokens of the attended word, the
    mean over those of the attending word (Clark et al. 2019, section 4.1). Attention to special tokens is left out."""
    return mean_over_tokens(weights, member) @ member


def mean_over_tokens(x: Tensor, member: Tensor) -> Tensor:
    """(..., tokens, any) -> (..., words, any): the mean over the tokens of each word."""
    return (member / member.sum(0)).T @ x


def most_attended(weights: Tensor) -> Tensor:
    """(..., words, words) -> (..., words): the other word that each attends to most; -1 where it attends to none, as the
    first word of a model from left to right."""
    others = weights.masked_fill(torch.eye(weights.shape[-1], dtype=torch.bool), 0)
    most = others.max(-1)
    return torch.where(most.values > 0, most.indices, -1)
