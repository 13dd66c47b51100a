"""What needs no network: the losses that a pre-training is compared with, on the same text.

A loss means little by itself. The context-free loss is that of a model that has learned how often each token occurs and nothing else; a
model near it is not trained yet. The n-gram model is what counting alone makes of the same tokens.
"""

from collections.abc import Iterator
from itertools import islice
from math import ceil, exp, log, log2

import numpy as np
import torch
from torch import Tensor

from components.core.ngrams import KneserNey
from components.objectives.contract import Objective
from components.objectives.examples.windows import Batches
from components.objectives.scoring import IGNORED
from components.text.encode import Split
from components.text.tokenizer import CLS, MASK

ORDER = 4
"""Of the n-gram model: a token from the three before it."""
MOST_TOKENS = 2 * 10**7
"""That it is counted on: the counts of so many take some two GiB."""
STEPS = 20
"""Of training, from which the share of hidden tokens that are shown all the same is told."""


def figures(
    objective: Objective, train_text: Split, valid_text: Split, vocab_size: int, train: Batches, valid: Batches, tokens: int
) -> dict[str, float]:  # fmt: skip
    """What a loss is compared with, where the objective has it: `context_free_loss`, and of a chain of tokens the
    n-gram model's figures, of as many `tokens` as were read."""
    found = {}
    if (loss := context_free_loss(objective, train_text, vocab_size, train, valid)) is not None:
        found["context_free_loss"] = loss
        print(f"context free loss {loss:.4f}", flush=True)
    if objective.chain_rule:
        found |= ngram(train_text, valid_text, vocab_size, tokens)
        print(f"ngram loss {found['ngram_loss']:.4f}", flush=True)
    return found


def context_free_loss(objective: Objective, text: Split, vocab_size: int, train: Batches, valid: Batches) -> float | None:
    """Nats a target of the best guess without context: how often each token occurs in the training text and, where some targets are shown
    as they are (Devlin et al. 2019, section 3.1), that the token shown is right in so many cases. None where no tokens are predicted."""
    counts = text.occurrences(vocab_size) + 1.0  # each token may come
    frequency = torch.tensor(counts / counts.sum())
    kept = shown_and_right(objective, train)
    loss, targets = 0.0, 0
    for label, seen in _asked(objective, valid):
        likely = frequency[label]
        if seen is not None:
            shown = seen != MASK
            likely = torch.where(shown, (1 - kept) * likely + kept * (seen == label), likely)
        loss, targets = loss - float(likely.log().sum()), targets + len(label)
    return loss / targets if targets else None


def shown_and_right(objective: Objective, train: Batches) -> float:
    """Of the targets in whose place a token stands and no [MASK]: the share where it is the one that is asked for."""
    right = shown = 0.0
    for label, seen in islice(_asked(objective, train), STEPS):
        if seen is not None:
            right, shown = right + float((seen == label).sum()), shown + float((seen != MASK).sum())
    return right / shown if shown else 0.0


def _asked(objective: Objective, batches: Batches) -> Iterator[tuple[Tensor, Tensor | None]]:
    """Of each step of an epoch the labels (n,), and what stands in their places, (n,) or None."""
    for step in range(batches.epoch_steps()):
        asked = objective.asked(batches[step].rows)
        if asked is None:
            return
        labels, seen = asked
        real = labels != IGNORED
        yield labels[real], None if seen is None else seen[real]


def ngram(train: Split, valid: Split, vocab_size: int, tokens: int, order: int = ORDER) -> dict[str, float]:
    """An n-gram model's loss in nats a target, perplexity and bits per byte, and the tokens that it was counted on: as many as a model
    read, at most all of the text.

    Interpolated Kneser-Ney smoothing with three discounts an order (Chen and Goodman 1999, section 4.1.6), over the stream of
    documents as a left-to-right model reads it. A token that opens a document is no target. The order falls where the ids of so many
    tokens are no 63 bits.
    """
    bits = ceil(log2(vocab_size))
    model = KneserNey(_stream(train, min(tokens, MOST_TOKENS)), vocab_size, min(order, 63 // bits))
    stream = _stream(valid, valid.num_tokens)
    likely = model.probabilities(stream)
    asked = (np.arange(len(stream)) > 0) & (stream != CLS)
    loss = float(-np.log(likely[asked]).mean())
    return {
        "ngram_loss": loss, "ngram_tokens": model.tokens, "ngram_perplexity": exp(min(loss, 50)),
        "ngram_bits_per_byte": loss * int(asked.sum()) / log(2) / valid.num_bytes,
    }  # fmt: skip


def _stream(text: Split, most: int) -> np.ndarray:
    """The first tokens of a text, (n,)."""
    taken, parts = 0, []
    for shard in text.shards:
        parts.append(np.asarray(shard.tokens[: most - taken], np.int64))
        taken += len(parts[-1])
        if taken >= most:
            break
    return np.concatenate(parts)
