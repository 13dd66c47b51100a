"""Decoding: greedy search, beam search, sampling. Whole batches at once; results do not depend on the batch."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from components.core.keyed import uniform
from components.params import Beam, Greedy, Sample


class Decoding(Protocol):
    """A model with growing texts, as in the families' `decoding.py`."""

    def opening(self) -> Tensor: ...

    def read(self, ids: Tensor) -> Tensor: ...

    def select(self, rows: Tensor, width: int = 1) -> None: ...


@dataclass(frozen=True)
class Limits:
    """Constraints on generated texts."""

    end: int
    """The end token."""
    forbidden: Tensor
    """Ids that are not text, (n,)."""
    most: int
    """The maximal number of new tokens."""
    last: int | None = None
    """The last token of a text of maximal length; None: any."""
    first: int | None = None
    """The first new token; None: any."""

    def score(self, scores: Tensor, step: int) -> None:
        """Set the scores of forbidden tokens of a step to -inf, (rows, vocab)."""
        scores[:, self.forbidden] = -torch.inf
        forced = self.last if self.last is not None and step + 1 == self.most else self.first if step == 0 else None
        if forced is not None:
            scores[:] = -torch.inf
            scores[:, forced] = 0


class State:
    """The texts in progress, and the scores of their next tokens, (rows, vocab)."""

    def __init__(self, decoding: Decoding, logits: Callable[[Tensor], Tensor]):
        self.decoding, self.logits = decoding, logits
        self.ids = decoding.opening()
        self.scores = logits(decoding.read(self.ids)[:, -1]).float()

    def add(self, tokens: Tensor) -> None:
        """Append a token to each text, (rows,)."""
        self.scores = self.logits(self.decoding.read(tokens[:, None])[:, 0]).float()

    def select(self, rows: Tensor, width: int = 1) -> None:
        """Select rows, of which each `width` belong to the same source."""
        self.decoding.select(rows, width)


@torch.no_grad()
def one_by_one(
    decoding: Decoding, logits: Callable[[Tensor], Tensor], how: Greedy | Sample, limits: Limits, keys: Tensor
) -> Iterator[tuple[Tensor, Tensor]]:  # fmt: skip
    """Yield which rows are in progress and their next tokens, until all have ended or have the maximal length. `keys` (rows,) number the
    texts: a text with the same number is the same in any batch."""
    state = State(decoding, logits)
    alive, written = torch.arange(len(state.ids)), state.ids.tolist()
    for step in range(limits.most):
        scores = state.scores
        limits.score(scores, step)
        if how.repetition_penalty != 1:
            scores = penalised(scores, [written[i] for i in alive.tolist()], how.repetition_penalty)
        tokens = scores.argmax(1) if isinstance(how, Greedy) else draw(scores, how, keys[alive], step)
        yield alive, tokens
        going = tokens != limits.end
        for i, token in zip(alive.tolist(), tokens.tolist(), strict=True):
            written[i].append(token)
        if not going.any() or step + 1 == limits.most:
            return
        if not going.all():
            alive, tokens = alive[going], tokens[going]
            state.select(going.nonzero()[:, 0])
        state.add(tokens)


def penalised(scores: Tensor, written: list[list[int]], penalty: float) -> Tensor:
    """Divide the scores of tokens that occur already by the penalty, multiply negative ones (Keskar et al. 2019)."""
    scores = scores.clone()
    for row, ids in zip(scores, written, strict=True):
        seen = torch.tensor(sorted(set(ids)))
        row[seen] = torch.where(row[seen] > 0, row[seen] / penalty, row[seen] * penalty)
    return scores


def draw(scores: Tensor, how: Sample, keys: Tensor, step: int) -> Tensor:
    """Sample a token for each row of scores (rows, vocab), among the `top_k` most probable and those with a total probability of `top_p`
    (Holtzman et al. 2020)."""
    ranked, order = (scores / how.temperature).sort(dim=1, descending=True, stable=True)
    shares = ranked.softmax(1)
    if how.top_k:
        shares[:, how.top_k :] = 0
    if how.top_p < 1:
        shares = shares / shares.sum(1, keepdim=True)
        shares[shares.cumsum(1) - shares >= how.top_p] = 0  # the token that crosses the bound is included
    sums = shares.double().cumsum(1)
    numbers = torch.from_numpy(uniform(how.seed, keys.numpy(), step))[:, None] * sums[:, -1:]
    return order.gather(1, torch.searchsorted(sums, numbers, right=True).clamp(max=scores.shape[1] - 1))[:, 0]


@torch.no_grad()
def beams(decoding: Decoding, logits: Callable[[Tensor], Tensor], how: Beam, limits: Limits) -> list[list[list[int]]]:
    """The texts of each row, at most as many as there are beams, the best first: by the sum of their tokens'
    log-probabilities, including the end, divided by their number to the power of `length_penalty` (Wu et al. 2016,
    section 7, without the constant). A row is done when no beam is better, at its length so far, than the worst of as
    many finished texts as there are beams, as in `transformers`: a longer one could still overtake it."""
    width, state = how.beams, State(decoding, logits)
    rows = len(state.ids)
    state.select(torch.arange(rows).repeat_interleave(width), width)
    scores = state.scores.repeat_interleave(width, 0)
    running = torch.full((rows, width), -1e9)
    running[:, 0] = 0  # all beams of a row are equal at first
    texts = torch.zeros(rows, width, 0, dtype=torch.long)
    finished: list[list[tuple[float, list[int]]]] = [[] for _ in range(rows)]
    alive = torch.arange(rows)
    for step in range(limits.most):
        steps = scores.log_softmax(1)
        limits.score(steps, step)
        sums = running[:, :, None] + steps.view(len(alive), width, -1)
        best, index = sums.flatten(1).topk(2 * width)
        beam, token = index // sums.shape[2], index % sums.shape[2]
        last = step + 1 == limits.most
        ends = (token == limits.end) | last
        for i, row in enumerate(alive.tolist()):  # an end among the best finishes a text; one below them is dropped
            for k in ends[i, :width].nonzero()[:, 0].tolist():
                text = texts[i, beam[i, k]].tolist() + ([] if token[i, k] == limits.end else [int(token[i, k])])
                finished[row].append((float(best[i, k]) / (step + 1) ** how.length_penalty, text))
            finished[row] = sorted(finished[row], key=lambda pair: -pair[0])[:width]
        if last:
            break
        running, kept = best.masked_fill(ends, -1e9).topk(width)
        beam, token = beam.gather(1, kept), token.gather(1, kept)
        texts = torch.cat([texts.gather(1, beam[:, :, None].expand(-1, -1, texts.shape[2])), token[:, :, None]], 2)
        open_ = torch.tensor([
            len(finished[row]) < width or float(running[i, 0]) / (step + 1) ** how.length_penalty > finished[row][-1][0]
            for i, row in enumerate(alive.tolist())
        ])  # fmt: skip
        if not open_.any():
            break
        rows_of = (torch.arange(len(alive)) * width)[:, None] + beam
        alive, running, texts, token, rows_of = alive[open_], running[open_], texts[open_], token[open_], rows_of[open_]
        state.select(rows_of.flatten(), width)
        state.add(token.flatten())
        scores = state.scores
    return [[text for _, text in texts_of_row] for texts_of_row in finished]
