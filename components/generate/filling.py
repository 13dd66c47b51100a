"""A masked model that writes where a text has holes: hides, fills, and hides again."""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import torch

from components.core.errors import SesameError
from components.core.keyed import uniform
from components.generate.search import draw
from components.models import store
from components.models.common.masked import MaskedLanguageModel
from components.params import Beam, Greedy, HowWritten
from components.text.tokenizer import CLS, MASK, SEP, Tokenizer, sentinels

ORDER, AGAIN = 1, 2
"""Keys of what is drawn beside the pieces: which hole is next."""


class Filler:
    """Fills one hole after another: greedily that whose piece is likeliest of all that are left, so that what is easy helps with the rest
    (Mansimov et al. 2019, section 3.3); drawn ones in an order that is drawn. In each of the `rounds` that follow every piece that was
    written is hidden once more and written again, beside all others (Wang and Cho 2019: Gibbs sampling where pieces are
    drawn)."""

    def __init__(self, model: MaskedLanguageModel, tokens: Tokenizer, rounds: int = 0):
        self.model, self.tokens, self.rounds = model, tokens, rounds
        self.text = tokens.decode
        ordinary = torch.zeros(tokens.vocab_size, dtype=torch.bool)
        ordinary[sentinels.ordinary(tokens)] = True
        self.forbidden = ~ordinary

    def source(self, text: str) -> list[int]:
        """Ids of a text with holes. Raises SesameError without any, and where the model does not read so far."""
        if "[MASK]" not in text:
            raise SesameError("a masked model fills holes: put a [MASK] into the text for each piece that is to be written")
        ids = [CLS, *sentinels.with_holes(self.tokens, text, [MASK]), SEP]
        if len(ids) > self.model.max_length:
            raise SesameError(f"the text has {len(ids)} tokens, and the model reads {self.model.max_length}: shorten it")
        return ids

    def write(self, sources: list[list[int]], how: HowWritten, batch_size: int = 1) -> list[list[int]]:
        """The texts, filled; what is drawn depends on the number of a text alone. Raises SesameError for beams."""
        if isinstance(how, Beam):
            raise SesameError("beams are for models that write from left to right; a masked one fills its holes greedily or by draws")
        return [self._filled(torch.tensor(ids), how, number) for number, ids in enumerate(sources)]

    def stream(self, source: list[int], how: HowWritten) -> Iterator[str]:
        """The whole text: a hole in the middle may be the last that is filled."""
        yield self.text(self.write([source], how)[0])

    @torch.no_grad()
    def _filled(self, ids: torch.Tensor, how: HowWritten, number: int) -> list[int]:
        holes = (ids == MASK).nonzero()[:, 0]
        left, step = holes.tolist(), 0
        while left:
            scores = self._scores(ids, torch.tensor(left), how)
            if isinstance(how, Greedy):
                nearest = int(scores.max(1).values.argmax())
            else:
                nearest = int(uniform(how.seed, number, ORDER, step) * len(left))
            place = left.pop(nearest)
            ids[place] = self._piece(scores[nearest], how, number, step)
            step += 1
        for again in range(self.rounds):
            order = uniform(getattr(how, "seed", 0), number, AGAIN, again, torch.arange(len(holes)).numpy()).argsort()
            for place in holes[order.tolist()].tolist():
                ids[place] = MASK
                ids[place] = self._piece(self._scores(ids, torch.tensor([place]), how)[0], how, number, step)
                step += 1
        return ids[1:-1].tolist()

    def _scores(self, ids: torch.Tensor, places: torch.Tensor, how: HowWritten) -> torch.Tensor:
        """Log-probabilities of the pieces at some places, (places, vocab)."""
        hidden = self.model(ids[None], torch.tensor([len(ids)]))[0, places]
        scores = self.model.logits(hidden).float().masked_fill(self.forbidden, -torch.inf).log_softmax(1)
        if how.repetition_penalty != 1:  # the logarithm of a probability is negative: penalised, it is further down
            met = ids[ids != MASK].unique()
            scores[:, met] = scores[:, met] * how.repetition_penalty
        return scores

    def _piece(self, scores: torch.Tensor, how: HowWritten, number: int, step: int) -> int:
        return int(scores.argmax() if isinstance(how, Greedy) else draw(scores[None], how, torch.tensor([number]), step)[0])


def fills(name: str) -> bool:
    """Whether a model of data/models is one with a head for masked tokens."""
    family = store.about(Path("data/models", name)).architecture.name
    return issubclass(import_module(f"components.models.{family}.model").Model, MaskedLanguageModel)


def load(name: str, rounds: int) -> Filler:
    """A masked model of data/models. Raises SesameError where its head was never trained, or it comes from elsewhere."""
    model, tokens = store.load(Path("data/models", name))
    if "head_transform" in model.absent:
        raise SesameError(f"{name} has no trained head for masked tokens, so that it can't fill holes")
    if not isinstance(tokens, Tokenizer):
        raise SesameError("how a model from elsewhere marks a [MASK] is not known here")
    return Filler(model.eval(), tokens, rounds)
