"""Reference losses on the same text without a network, with which the loss of a pre-training is compared.

The context-free loss is that of a model that has learned how often each token occurs and nothing else; a model near it is not
trained yet. The n-gram model shows what counting alone achieves on the same tokens.
"""

from collections.abc import Iterator
from itertools import islice
from math import ceil, exp, log, log2

import numpy as np
import torch
from torch import Tensor

from components.core.keyed import generator
from components.core.ngrams import KneserNey
from components.objectives.contract import Objective
from components.objectives.examples.batches import Batches
from components.objectives.scoring import IGNORED
from components.text.encode import Split
from components.text.tokenizer import CLS, MASK

ORDER = 4
"""Order of the n-gram model: it predicts a token from the three before it."""
MAX_TOKENS = 2 * 10**7
"""Tokens that the n-gram model is counted on at most; their counts take about 2 GiB."""
STEPS = 20
"""Training steps from which the share of unchanged inputs among the targets is estimated."""


def baseline_metrics(
    objective: Objective, train_text: Split, valid_text: Split, vocab_size: int, train: Batches, valid: Batches, tokens: int
) -> dict[str, float]:  # fmt: skip
    """Return `context_free_loss` if the objective predicts tokens, and the n-gram model's metrics if it factorises the text.

    The n-gram model is counted on as many `tokens` as the model read, of documents drawn from all of the text as the
    model's are.
    """
    metrics = {}
    if (loss := context_free_loss(objective, train_text, vocab_size, train, valid)) is not None:
        metrics["context_free_loss"] = loss
        print(f"context free loss {loss:.4f}", flush=True)
    if objective.chain_rule:
        metrics |= ngram(train_text, valid_text, vocab_size, tokens)
        print(f"ngram loss {metrics['ngram_loss']:.4f}", flush=True)
    return metrics


def context_free_loss(objective: Objective, text: Split, vocab_size: int, train: Batches, valid: Batches) -> float | None:
    """Return the loss in nats per target of the best prediction without context; None if no tokens are predicted.

    The prediction is the frequency of each token in the training text and, where some inputs are not masked (Devlin et al.
    2019, section 3.1), the probability that the visible token is the target.
    """
    counts = text.occurrences(vocab_size) + 1.0  # no token is impossible
    frequency = torch.tensor(counts / counts.sum())
    unchanged = unchanged_share(objective, train)
    loss, targets = 0.0, 0
    for label, seen in _targets(objective, valid):
        likely = frequency[label]
        if seen is not None:
            likely = torch.where(seen != MASK, (1 - unchanged) * likely + unchanged * (seen == label), likely)
        loss, targets = loss - float(likely.log().sum()), targets + len(label)
    return loss / targets if targets else None


def unchanged_share(objective: Objective, train: Batches) -> float:
    """Return the share of targets whose input is the target itself, among those whose input is not [MASK]."""
    unchanged = visible = 0.0
    for label, seen in islice(_targets(objective, train), STEPS):
        if seen is not None:
            unchanged += float((seen == label).sum())
            visible += float((seen != MASK).sum())
    return unchanged / visible if visible else 0.0


def _targets(objective: Objective, batches: Batches) -> Iterator[tuple[Tensor, Tensor | None]]:
    """Yield the labels (n,) of each step of an epoch, and the inputs at their positions, (n,) or None."""
    for step in range(batches.epoch_steps()):
        targets = objective.token_targets(batches[step].tensors)
        if targets is None:
            return
        labels, seen = targets
        real = labels != IGNORED
        yield labels[real], None if seen is None else seen[real]


def ngram(train: Split, valid: Split, vocab_size: int, tokens: int, order: int = ORDER) -> dict[str, float]:
    """Return the loss in nats per target, perplexity and bits per byte of an n-gram model, and the tokens it was counted on.

    Interpolated Kneser-Ney smoothing with three discounts per order (Chen and Goodman 1999, section 4.1.6), over the
    documents as a left-to-right model reads them. The first token of a document is no target. The order is lower if the ids
    of so many tokens do not fit into 63 bits.
    """
    bits = ceil(log2(vocab_size))
    model = KneserNey(_drawn_tokens(train, min(tokens, MAX_TOKENS)), vocab_size, min(order, 63 // bits))
    stream = _drawn_tokens(valid, valid.num_tokens)
    likely = model.probabilities(stream)
    targets = (np.arange(len(stream)) > 0) & (stream != CLS)
    loss = float(-np.log(likely[targets]).mean())
    return {
        "ngram_loss": loss, "ngram_tokens": model.tokens, "ngram_perplexity": exp(min(loss, 50)),
        "ngram_bits_per_byte": loss * int(targets.sum()) / log(2) / valid.num_bytes,
    }  # fmt: skip


def _drawn_tokens(text: Split, count: int) -> np.ndarray:
    """Return whole documents of a text up to a number of tokens, of which the last one is cut, (n,).

    They are drawn with a fixed seed: the first ones of a text are those of its first part. All of them stay in their
    order.
    """
    if count >= text.num_tokens:
        return np.concatenate([np.asarray(shard.tokens, np.int64) for shard in text.shards])
    bounds = [shard.document_tokens for shard in text.shards]
    sizes = np.concatenate([np.diff(of_shard) for of_shard in bounds])
    order = generator(0).permutation(len(sizes))
    room = np.zeros_like(sizes)
    room[order] = np.clip(count - (np.cumsum(sizes[order]) - sizes[order]), 0, sizes[order])
    taken, first = [], 0
    for shard, of_shard in zip(text.shards, bounds, strict=True):
        for start, size in zip(of_shard[:-1], room[first : first + len(shard)], strict=True):
            if size:
                taken.append(np.asarray(shard.tokens[start : start + size], np.int64))
        first += len(shard)
    return np.concatenate(taken)
