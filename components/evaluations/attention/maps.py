"""The weights of attention of any model, as it reads a text, and what they are between words.

Families hand their queries and keys to one function of torch, which gives back no weights. A mode of torch sees each
such call while a model reads, and computes the weights beside it, so that no family knows of it.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot, scaled_dot_product_attention
from torch.overrides import TorchFunctionMode

from components.core.errors import SesameError
from components.evaluations import treebanks
from components.evaluations.reading import device_of, reading
from components.models.contract import LanguageModel

AT_ONCE = 2**18
"""Weights of a head that are held together, in 32 bit: a batch of long texts is read in parts."""


class Recorder(TorchFunctionMode):
    """While it is entered, keeps the weights of all attention that is computed."""

    def __init__(self):
        super().__init__()
        self.weights: list[Tensor] = []
        """Of each call (batch, heads, queries, keys) float32, before dropout."""

    def __torch_function__(self, function: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if function is scaled_dot_product_attention:
            self.weights.append(_weights(*args, **kwargs))
        made = function(*args, **kwargs)
        # short texts in bf16 on a CPU do without that function, see `components.models.common.transformer.attention`
        if function is Tensor.softmax and made.dim() == 4:
            self.weights.append(made.float())
        return made


def _weights(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None,
) -> Tensor:  # fmt: skip
    """The weights that torch's function has for the same arguments, in float32."""
    scores = query.float() @ key.float().transpose(-2, -1) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -torch.inf) if attn_mask.dtype == torch.bool else scores + attn_mask
    return scores.softmax(-1)


def of_tokens(model: LanguageModel, ids: Tensor, lengths: Tensor, name: str) -> list[Tensor]:
    """Of each layer its self-attention, (batch, heads, length, length) float32: a row is what a token attends to, and
    sums to 1. Of an encoder-decoder it is that of the encoder.

    ids (batch, length), padded on the right, lengths (batch,). Rows of padding mean nothing. `name` is for errors:
    raises SesameError for a model without attention, and for one that does not attend from token to token.
    """
    read = model.encode if model.reads == "source_then_target" else model.layers
    with reading(model), Recorder() as recorder:
        read(ids, lengths)
    if not recorder.weights:
        raise SesameError(f"{name} has no attention between tokens: take a Transformer, as BERT's or GPT's family is")
    expected = (len(ids), ids.shape[1], ids.shape[1])
    if any((own.shape[0], *own.shape[2:]) != expected for own in recorder.weights):
        raise SesameError(f"{name} attends between groups of tokens, as CANINE does: nothing says what words attend to")
    return recorder.weights


def of_sentences(model: LanguageModel, rows: treebanks.Rows, name: str) -> Iterator[tuple[int, list[Tensor]]]:
    """The number of each sentence that fits, the shortest first, and its weights in each layer, (heads, tokens, tokens)
    float32. Raises SesameError as `of_tokens`."""
    device = device_of(model)
    for some, ids, lengths in treebanks.batches(rows):
        size = max(1, AT_ONCE // ids.shape[1] ** 2)
        for start in range(0, len(some), size):
            part = slice(start, start + size)
            layers = of_tokens(model, ids[part].to(device), lengths[part].to(device), name)
            for row, i in enumerate(some[part]):
                tokens = len(rows.ids[i])
                yield i, [layer[row, :, :tokens, :tokens].cpu() for layer in layers]


def membership(words: Sequence[int]) -> Tensor:
    """Of each token the number of its word from 0, -1 for none -> (tokens, words), 1 where a token is of a word."""
    return one_hot(torch.tensor(words) + 1)[:, 1:].float()


def of_words(weights: Tensor, member: Tensor) -> Tensor:
    """(..., tokens, tokens) and (tokens, words) -> (..., words, words): to a word the sum over its pieces, from it
    their mean (Clark et al. 2019, section 4.1). What goes to specials is missing from a row."""
    return from_words(weights, member) @ member


def from_words(x: Tensor, member: Tensor) -> Tensor:
    """(..., tokens, any) -> (..., words, any): the mean over the pieces of each word."""
    return (member / member.sum(0)).T @ x


def most_attended(weights: Tensor) -> Tensor:
    """(..., words, words) -> (..., words): to which other word each attends most; -1 where it attends to none, as the
    first word of a model that reads from left to right."""
    others = weights.masked_fill(torch.eye(weights.shape[-1], dtype=torch.bool), 0)
    most = others.max(-1)
    return torch.where(most.values > 0, most.indices, -1)
