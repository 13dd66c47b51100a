"""Search for a text: the likeliest piece each time, beams, or draws. All rows at once; what is found does not depend on the batch."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from components.core.keyed import uniform
from components.params import Beam, Greedy, Sample


class Decoding(Protocol):
    """A model with texts that grow, as the families' `decoding.py` have it."""

    def opening(self) -> Tensor: ...

    def read(self, ids: Tensor) -> Tensor: ...

    def select(self, rows: Tensor, width: int = 1) -> None: ...


@dataclass(frozen=True)
class Limits:
    """What may be written."""

    end: int
    """The piece that ends a text."""
    forbidden: Tensor
    """Ids that are no text, (n,)."""
    most: int
    """New tokens."""
    last: int | None = None
    """The last of so many; None: any."""

    def score(self, scores: Tensor, step: int) -> None:
        """Make -inf of the scores of what may not be written in this step, (rows, vocab)."""
        scores[:, self.forbidden] = -torch.inf
        if self.last is not None and step + 1 == self.most:
            scores[:] = -torch.inf
            scores[:, self.last] = 0


class State:
    """The rows that are still written, and the scores of the next token of each, (rows, vocab)."""

    def __init__(self, decoding: Decoding, logits: Callable[[Tensor], Tensor]):
        self.decoding, self.logits = decoding, logits
        self.ids = decoding.opening()
        self.scores = logits(decoding.read(self.ids)[:, -1]).float()

    def add(self, tokens: Tensor) -> None:
        """Write a token to each row, (rows,)."""
        self.scores = self.logits(self.decoding.read(tokens[:, None])[:, 0]).float()

    def select(self, rows: Tensor, width: int = 1) -> None:
        """Keep these rows, each `width` of which are of one source."""
        self.decoding.select(rows, width)


@torch.no_grad()
def one_by_one(
    decoding: Decoding, logits: Callable[[Tensor], Tensor], how: Greedy | Sample, limits: Limits, keys: Tensor
) -> Iterator[tuple[Tensor, Tensor]]:  # fmt: skip
    """Which rows are written on, and the next token of each, until all have ended or are as long as they may be. `keys` (rows,) number
    the texts: the same number draws the same text in whatever batch."""
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
    """Scores of pieces that were read or written already are divided by the penalty, negative ones multiplied (Keskar et al. 2019)."""
    scores = scores.clone()
    for row, own in zip(scores, written, strict=True):
        met = torch.tensor(sorted(set(own)))
        row[met] = torch.where(row[met] > 0, row[met] / penalty, row[met] * penalty)
    return scores


def draw(scores: Tensor, how: Sample, keys: Tensor, step: int) -> Tensor:
    """scores (rows, vocab) -> a token each, (rows,), among the likeliest `top_k` and those that together have `top_p` (Holtzman et al.
    2020)."""
    ranked, order = (scores / how.temperature).sort(dim=1, descending=True, stable=True)
    shares = ranked.softmax(1)
    if how.top_k:
        shares[:, how.top_k :] = 0
    if how.top_p < 1:
        shares = shares / shares.sum(1, keepdim=True)
        shares[shares.cumsum(1) - shares >= how.top_p] = 0  # the one that goes over the bound is in
    sums = shares.double().cumsum(1)
    numbers = torch.from_numpy(uniform(how.seed, keys.numpy(), step))[:, None] * sums[:, -1:]
    return order.gather(1, torch.searchsorted(sums, numbers, right=True).clamp(max=scores.shape[1] - 1))[:, 0]


@torch.no_grad()
def beams(decoding: Decoding, logits: Callable[[Tensor], Tensor], how: Beam, limits: Limits) -> list[list[int]]:
    """Of each row the best text that was found: the sum of its tokens' log-probabilities, its end counted, over the number of them to the
    power of `length_penalty` (Wu et al. 2016, section 7, without the constant). A row is done when no beam can get better than the worst
    of as many finished texts as there are beams, as `transformers` has it."""
    width, state = how.beams, State(decoding, logits)
    rows = len(state.ids)
    state.select(torch.arange(rows).repeat_interleave(width), width)
    scores = state.scores.repeat_interleave(width, 0)
    running = torch.full((rows, width), -1e9)
    running[:, 0] = 0  # all beams of a row are the same at first
    texts = torch.zeros(rows, width, 0, dtype=torch.long)
    finished: list[list[tuple[float, list[int]]]] = [[] for _ in range(rows)]
    alive = torch.arange(rows)
    for step in range(limits.most):
        steps = scores.log_softmax(1)
        limits.score(steps, step)
        sums = running[:, :, None] + steps.view(len(alive), width, -1)
        best, at = sums.flatten(1).topk(2 * width)
        beam, token = at // sums.shape[2], at % sums.shape[2]
        last = step + 1 == limits.most
        ends = (token == limits.end) | last
        for i, row in enumerate(alive.tolist()):  # what ends among the best is finished; further below it is only left out
            for k in ends[i, :width].nonzero()[:, 0].tolist():
                own = texts[i, beam[i, k]].tolist() + ([] if token[i, k] == limits.end else [int(token[i, k])])
                finished[row].append((float(best[i, k]) / (step + 1) ** how.length_penalty, own))
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
    return [own[0][1] for own in finished]
