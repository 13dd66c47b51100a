"""Pairs of sequences: a source that is read, a target that is generated."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from components.models.contract import LanguageModel
from components.objectives.examples.batches import TEXT_MULTIPLE, Chunk, Tensors, padded_layout
from components.objectives.examples.segments import ranges
from components.objectives.sampling import generate
from components.objectives.scoring import IGNORED, logit_chunk_size
from components.text.tokenizer import CLS, PAD, SEP, Tokenizer


class Side(NamedTuple):
    """The sources or the targets of all sequences."""

    ids: np.ndarray  # (n,): one sequence after another
    lengths: np.ndarray  # (sequences,)


def source_target_chunk(
    first: int, batch_size: int, max_length: int, source: Side, target: Side, tokens: np.ndarray, terms: tuple[str, ...],
    byte_lengths: np.ndarray,
) -> Chunk:  # fmt: skip
    """Build a chunk; `tokens` (sequences,) are the tokens read of the text. No side is padded beyond `max_length`.

    Each loss term is over all tokens of the target but `[CLS]`: the start of a document is not text.
    """
    flat = {}
    for name, side in (("ids", source), ("targets", target)):
        widths, begins = padded_layout(side.lengths, batch_size, TEXT_MULTIPLE, max_length)
        ids = np.full(batch_size * widths.sum(), PAD)
        ids[ranges(begins, side.lengths)] = side.ids
        flat[name] = (ids, widths)
    sequence = np.repeat(np.arange(len(target.lengths)), target.lengths)
    targets = np.bincount(sequence, target.ids != CLS, minlength=len(target.lengths))
    counts = {"tokens": tokens, "bytes": np.bincount(sequence, byte_lengths[target.ids], minlength=len(target.lengths))}
    counts |= {term: targets for term in terms}
    return Chunk.from_arrays(first, batch_size, flat | {"lengths": (source.lengths, None)}, counts)


def target_labels(targets: Tensor) -> Tensor:
    """targets (batch, length) -> labels (batch * length,)."""
    return torch.where((targets == PAD) | (targets == CLS), IGNORED, targets).flatten()


def smoothed_losses(model: LanguageModel, batch: Tensors) -> tuple[Tensor, Tensor, Tensor]:
    """Return the sum of the losses over all targets in nats; that of the loss against the uniform distribution; correct predictions.

    The share of the uniform distribution in the loss is label smoothing (Szegedy et al. 2016, section 7). The number of correct
    predictions is 0 in training. The logits are computed in chunks, as in `scoring.score_tokens`.
    """
    hidden, labels = model(batch["ids"], batch["lengths"], batch["targets"]).flatten(0, 1), target_labels(batch["targets"])
    size = logit_chunk_size(hidden)
    sums = []
    for states, targets in zip(hidden.split(size), labels.split(size), strict=True):
        logits, real = model.logits(states).float(), targets != IGNORED
        log_sum = logits.logsumexp(1)
        loss = log_sum - logits.gather(1, targets.clamp(min=0)[:, None])[:, 0]
        correct = targets.new_zeros(()) if model.training else (real & (logits.argmax(1) == targets)).sum()
        sums.append(((loss * real).sum(), ((log_sum - logits.mean(1)) * real).sum(), correct))
    loss, uniform, correct = (torch.stack(column).sum() for column in zip(*sums, strict=True))
    return loss, uniform, correct


def to_text(ids: list[int], names: Mapping[int, str], tokens: Tokenizer) -> str:
    """Show a sequence as text: `¶` at the start of a document, `|` at the end of a segment, `names` for ids that are no text."""
    marks = {CLS: " ¶", SEP: " |"} | {i: f" {name}" for i, name in names.items()}
    return "".join(marks[i] if i in marks else tokens.pieces[i].decode(errors="replace") for i in ids if i != PAD).strip()


def generate_target(model: LanguageModel, source: list[int], max_tokens: int) -> list[int]:
    """Generate the target of a source greedily, with at most `max_tokens`."""
    ids, lengths = torch.tensor([source]), torch.tensor([len(source)])
    return generate(
        lambda target: model.logits(model(ids, lengths, torch.tensor([[*target, PAD]]))[0, -1]),
        [SEP], min(max_tokens, model.max_length - 1),
    )  # fmt: skip
