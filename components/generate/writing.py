"""A model that writes: inputs of its tokenizer, texts out of `search`."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import torch
from torch.nn.utils.rnn import pad_sequence

from components import params
from components.core.errors import SesameError
from components.generate import search
from components.models import store
from components.models.contract import LanguageModel
from components.params import Beam, HowWritten
from components.params.models import ARCHITECTURES
from components.text.tokenizer import MASK, SPECIALS, Tokenizer, sentinels
from components.text.tokenizer.fast import FastTokenizer


class Writer:
    """A model with what it takes to write."""

    def __init__(self, model: LanguageModel, tokens: Tokenizer | FastTokenizer, holes: Sequence[int] = (), name: str = "the model"):
        """`holes`: the ids that mark them, in their order. Raises SesameError where its family can't write."""
        self.model, self.tokens, self.holes = model, tokens, list(holes)
        self.decoding = decoding(family(model), name)
        self.reads_source, self.opening = reads_source(model), opening(model, tokens)
        self.end = tokens.suffix[-1]
        self.forbidden = torch.tensor([i for i in self._no_text() if i not in (self.end, *self.opening)], dtype=torch.long)
        self.cut = 0
        """Sources that did not fit."""

    def _no_text(self) -> list[int]:
        return list(range(len(SPECIALS))) if isinstance(self.tokens, Tokenizer) else sorted(self.tokens.hidden)

    def source(self, text: str) -> list[int]:
        """What the model reads of a text: a source, cut to what it reads, or a beginning. Each `[MASK]` is a hole. Raises SesameError for
        one where nothing says how the model marks it."""
        if "[MASK]" in text and not isinstance(self.tokens, Tokenizer):
            raise SesameError("how a model from elsewhere marks a [MASK] is not known here: leave it out")
        ids = sentinels.with_holes(self.tokens, text, self.holes or [MASK])
        if not self.reads_source:
            return [*self.tokens.prefix, *ids] or [self.end]
        room = self.model.max_length - len(self.tokens.prefix) - len(self.tokens.suffix)
        self.cut += len(ids) > room
        return [*self.tokens.prefix, *ids[:room], *self.tokens.suffix]

    def text(self, ids: list[int]) -> str:
        """What was written, as text; `<0>` is what stands for the first hole."""
        parts: list[str] = []
        run: list[int] = []
        for i in [*ids, None]:
            if i is not None and i not in self.holes:
                run.append(i)
                continue
            parts += [self.tokens.decode(run)] if run else []
            parts += [f"<{self.holes.index(i)}>"] if i is not None else []
            run = []
        return " ".join(parts)

    def room(self, source: list[int], how: HowWritten) -> int:
        """New tokens for a source. Raises SesameError where it leaves none."""
        left = self.model.max_length - (1 if self.reads_source else len(source))
        if left < 1:
            raise SesameError(f"the beginning has {len(source)} tokens, and the model reads {self.model.max_length}: shorten it")
        return min(how.max_new_tokens, left)

    def write(self, sources: list[list[int]], how: HowWritten, batch_size: int) -> list[list[int]]:
        """A text for each source, without its end; what is written does not depend on the batches."""
        groups, texts = defaultdict(list), [[] for _ in sources]
        for i, source in enumerate(sources):  # beginnings go on side by side where they are as long
            groups[0 if self.reads_source else len(source)].append(i)
        for own in groups.values():
            most = self.room(sources[own[0]], how)
            own.sort(key=lambda i: len(sources[i]))
            for start in range(0, len(own), batch_size):
                part = own[start : start + batch_size]
                if isinstance(how, Beam):
                    found = search.beams(*self._begun([sources[i] for i in part], most), how, self._limits(most))
                    for i, text in zip(part, found, strict=True):
                        texts[i] = text
                else:
                    for rows, tokens in self._steps([sources[i] for i in part], part, most, how):
                        for row, token in zip(rows.tolist(), tokens.tolist(), strict=True):
                            texts[part[row]] += [token] if token != self.end else []
        return texts

    def stream(self, source: list[int], how: HowWritten) -> Iterator[str]:
        """A text as it is written, piece by piece, where nothing is taken back."""
        ids, told = [], ""
        for _, tokens in self._steps([source], [0], self.room(source, how), how):
            ids += [int(tokens)] if int(tokens) != self.end else []
            text = self.text(ids)
            if not text.endswith("\ufffd"):  # half a character
                yield text[len(told) :]
                told = text
        yield self.text(ids)[len(told) :]

    def _begun(self, sources: list[list[int]], most: int) -> tuple[search.Decoding, Callable[[torch.Tensor], torch.Tensor]]:
        ids = pad_sequence([torch.tensor(source) for source in sources], batch_first=True)
        lengths = torch.tensor([len(source) for source in sources])
        with torch.no_grad():
            decoding = self.decoding(self.model, ids, lengths, most + (1 if self.reads_source else ids.shape[1]))
        return decoding, self.model.logits

    def _steps(self, sources: list[list[int]], keys: list[int], most: int, how: HowWritten):
        return search.one_by_one(*self._begun(sources, most), how, self._limits(most), torch.tensor(keys))

    def _limits(self, most: int) -> search.Limits:
        return search.Limits(self.end, self.forbidden, most, self.model.forced_end)


def decoding(family: str, name: str) -> type[search.Decoding]:
    """How models of a family write. Raises SesameError where they can't."""
    if not find_spec(f"components.models.{family}.decoding"):
        able = ", ".join(other for other in ARCHITECTURES if find_spec(f"components.models.{other}.decoding"))
        raise SesameError(f"{name} is of the family {family}, which doesn't write from left to right (those that do: {able})")
    return import_module(f"components.models.{family}.decoding").Decoding


def family(model: LanguageModel) -> str:
    """That a model is of."""
    return type(model).__module__.split(".")[-2]


def reads_source(model: LanguageModel) -> bool:
    """Whether a model reads a source and writes a target beside it, and does not go on with a text."""
    return hasattr(model, "encode")


def opening(model: LanguageModel, tokens: Tokenizer | FastTokenizer) -> list[int]:
    """What a target begins with: BART's with the prefix of a text."""
    return tokens.prefix if reads_source(model) and not isinstance(tokens, Tokenizer) else []


def load(name: str, objective: params.Objective | None = None) -> Writer:
    """A writer with a model of data/models. `objective`: what it was trained by here, which says how a hole in a text is marked.
    Raises SesameError where its family can't write."""
    folder = Path("data/models", name)
    decoding(store.about(folder).architecture.name, name)
    model, tokens = store.load(folder)
    marks = sentinels.ids(tokens.vocab_size, objective.sentinels(model.max_length) if objective else 0)
    return Writer(model.eval(), tokens, marks, name)


def of_params(all_params: params.Params, name: str) -> Writer:
    """The writer of a model of params.yaml, or of one that only stands in data/models."""
    known = name in (*all_params.models, *all_params.checkpoints, *all_params.derived)
    read = all_params.read_by(name) if known else []
    return load(name, read[-1][1] if read else None)
