"""Generation with a masked model: fill the masks of a text, then mask and fill them again."""

from collections.abc import Iterator
from pathlib import Path

import torch

from components.core.errors import SesameError
from components.core.keyed import uniform
from components.generate import gaps
from components.generate.search import draw
from components.models import holes, store
from components.models.contract import LanguageModel
from components.params import Beam, Greedy, HowWritten
from components.text.tokenizer import Tokenizer
from components.text.tokenizer.fast import FastTokenizer

ORDER, AGAIN = 1, 2
"""Keys of the random numbers for the order of the masks."""


class Filler:
    """Fills one mask after another: greedily the one with the most probable token, so that easy ones give context for the others
    (Mansimov et al. 2019, section 3.3); with sampling in a random order. In each of the `rounds` after that every generated token is
    masked and filled again, given all others (Wang and Cho 2019: Gibbs sampling, if tokens are sampled)."""

    cut = 0
    """Texts that were cut, as `Writer` counts them: none, since one that is too long is refused."""

    def __init__(self, model: LanguageModel, tokens: Tokenizer | FastTokenizer, rounds: int = 0):
        self.model, self.tokens, self.mask, self.rounds = model, tokens, tokens.mask, rounds
        self.text = tokens.decode
        self.forbidden = torch.zeros(tokens.vocab_size, dtype=torch.bool)
        self.forbidden[gaps.not_text(tokens)] = True

    def source(self, text: str) -> list[int]:
        """Ids of a text with masks. Raises SesameError for a text without one, and a text that is too long."""
        inside = gaps.encode(self.tokens, text, [self.mask])
        if self.mask not in inside:
            raise SesameError("a masked model fills masks: put a [MASK] into the text for each token to generate")
        ids = [*self.tokens.prefix, *inside, *self.tokens.suffix]
        if len(ids) > self.model.max_length:
            raise SesameError(f"the text has {len(ids)} tokens, and the model reads {self.model.max_length}: shorten it")
        return ids

    def room(self, source: list[int], how: HowWritten) -> int:
        """The number of tokens that it generates: one for each mask."""
        return source.count(self.mask)

    def write(self, sources: list[list[int]], how: HowWritten, batch_size: int = 1) -> list[list[int]]:
        """Fill the texts; random numbers depend on the index of a text only. Raises SesameError for beam search."""
        if isinstance(how, Beam):
            raise SesameError("beam search is for models from left to right; a masked model fills its masks greedily or by sampling")
        return [self._filled(torch.tensor(ids), how, number) for number, ids in enumerate(sources)]

    def stream(self, source: list[int], how: HowWritten) -> Iterator[str]:
        """The complete text, since a mask in the middle may be the last to be filled."""
        yield self.text(self.write([source], how)[0])

    @torch.no_grad()
    def _filled(self, ids: torch.Tensor, how: HowWritten, number: int) -> list[int]:
        holes = (ids == self.mask).nonzero()[:, 0]
        left, step = holes.tolist(), 0
        while left:
            scores = self._scores(ids, torch.tensor(left), how)
            if isinstance(how, Greedy):
                next_ = int(scores.max(1).values.argmax())
            else:
                next_ = int(uniform(how.seed, number, ORDER, step) * len(left))
            position = left.pop(next_)
            ids[position] = self._token(scores[next_], how, number, step)
            step += 1
        for again in range(self.rounds):
            order = uniform(getattr(how, "seed", 0), number, AGAIN, again, torch.arange(len(holes)).numpy()).argsort()
            for position in holes[order.tolist()].tolist():
                ids[position] = self.mask
                ids[position] = self._token(self._scores(ids, torch.tensor([position]), how)[0], how, number, step)
                step += 1
        return ids[len(self.tokens.prefix) : len(ids) - len(self.tokens.suffix)].tolist()

    def _scores(self, ids: torch.Tensor, positions: torch.Tensor, how: HowWritten) -> torch.Tensor:
        """Log-probabilities of the tokens at some positions, (positions, vocab)."""
        hidden = holes.states(self.model, ids[None], torch.tensor([len(ids)]), positions[None], self.mask)[0]
        scores = self.model.logits(hidden).float().masked_fill(self.forbidden, -torch.inf).log_softmax(1)
        if how.repetition_penalty != 1:  # a log-probability is negative, so that a factor above 1 lowers it
            seen = ids[ids != self.mask].unique()
            scores[:, seen] = scores[:, seen] * how.repetition_penalty
        return scores

    def _token(self, scores: torch.Tensor, how: HowWritten, number: int, step: int) -> int:
        return int(scores.argmax() if isinstance(how, Greedy) else draw(scores[None], how, torch.tensor([number]), step)[0])


def fills(name: str) -> bool:
    """Whether a model of data/models predicts tokens from both sides."""
    return store.about(Path("data/models", name)).architecture.reads in holes.HEADS


def load(name: str, rounds: int) -> Filler:
    """A masked model of data/models. Raises SesameError where its head was not trained, or its tokenizer has no mask token."""
    model, tokens = store.load(Path("data/models", name))
    if not holes.predicts(model):
        raise SesameError(f"{name} has no trained head for masked tokens and cannot fill masks")
    if tokens.mask is None:
        raise SesameError(f"{name} can't fill gaps: its tokenizer names no mask token")
    return Filler(model.eval(), tokens, rounds)
