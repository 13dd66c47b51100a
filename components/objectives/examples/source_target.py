"""Rows of two texts: a source that is read, a target that is written."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from components.models.contract import LanguageModel
from components.objectives.examples.segments import ranges
from components.objectives.examples.windows import Rows, Window, padded
from components.objectives.scoring import IGNORED, ROWS
from components.objectives.writing import written
from components.text.tokenizer import CLS, PAD, SEP, Tokenizer


class Side(NamedTuple):
    """One of the two texts of all rows."""

    ids: np.ndarray  # (n,): row after row
    lengths: np.ndarray  # (rows,)


def laid_out(
    first: int, batch_size: int, source: Side, target: Side, tokens: np.ndarray, parts: tuple[str, ...], byte_lengths: np.ndarray
) -> Window:  # fmt: skip
    """Steps of rows; `tokens` (rows,): those read of the text. Each part of the loss is asked of every target but a `[CLS]`: that a
    document opens is not text."""
    flat = {}
    for name, side in (("ids", source), ("targets", target)):
        widths, begins = padded(side.lengths, batch_size)
        ids = np.full(batch_size * widths.sum(), PAD)
        ids[ranges(begins, side.lengths)] = side.ids
        flat[name] = (ids, widths)
    row = np.repeat(np.arange(len(target.lengths)), target.lengths)
    asked = np.bincount(row, target.ids != CLS, minlength=len(target.lengths))
    counts = {"tokens": tokens, "bytes": np.bincount(row, byte_lengths[target.ids], minlength=len(target.lengths))}
    counts |= {part: asked for part in parts}
    return Window.laid_out(first, batch_size, flat | {"lengths": (source.lengths, None)}, counts)


def labels(targets: Tensor) -> Tensor:
    """targets (batch, length) -> what is predicted there, (batch * length,)."""
    return torch.where((targets == PAD) | (targets == CLS), IGNORED, targets).flatten()


def score(model: LanguageModel, rows: Rows) -> tuple[Tensor, Tensor, Tensor]:
    """Of all targets the sum of the losses in nats; that of the losses against pieces drawn at random, whose share in the loss is what
    label smoothing is (Szegedy et al. 2016, section 7); and how many were right, 0 while training.

    A CPU makes the logits a piece at a time, as in `scoring.score_tokens`.
    """
    hidden, wanted = model(rows["ids"], rows["lengths"], rows["targets"]).flatten(0, 1), labels(rows["targets"])
    size = ROWS if hidden.device.type == "cpu" and not torch.compiler.is_compiling() else len(hidden)
    sums = []
    for own, asked in zip(hidden.split(size), wanted.split(size), strict=True):
        logits, real = model.logits(own).float(), asked != IGNORED
        log_sum = logits.logsumexp(1)
        loss = log_sum - logits.gather(1, asked.clamp(min=0)[:, None])[:, 0]
        right = asked.new_zeros(()) if model.training else (real & (logits.argmax(1) == asked)).sum()
        sums.append(((loss * real).sum(), ((log_sum - logits.mean(1)) * real).sum(), right))
    loss, uniform, right = (torch.stack(part).sum() for part in zip(*sums, strict=True))
    return loss, uniform, right


def shown(ids: list[int], names: Mapping[int, str], tokens: Tokenizer) -> str:
    """A row as text: `¶` where a document opens, `names` for ids that are no text."""
    marks = {CLS: " ¶", SEP: " |"} | {i: f" {name}" for i, name in names.items()}
    return "".join(marks[i] if i in marks else tokens.pieces[i].decode(errors="replace") for i in ids if i != PAD).strip()


def answered(model: LanguageModel, source: list[int], most: int) -> list[int]:
    """What a model writes for a source, the likeliest piece each time, in `most` tokens at most."""
    ids, lengths = torch.tensor([source]), torch.tensor([len(source)])
    return written(
        lambda target: model.logits(model(ids, lengths, torch.tensor([[*target, PAD]]))[0, -1]), [SEP], min(most, model.max_length - 1)
    )
