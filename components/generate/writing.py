"""Generation of texts with a model: inputs from its tokenizer, outputs from `search`."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import torch
from torch.nn.utils.rnn import pad_sequence

from components import params
from components.core.errors import SesameError
from components.generate import gaps, search
from components.models import store
from components.models.contract import LanguageModel
from components.params import Beam, HowWritten
from components.params.models import ARCHITECTURES
from components.text.tokenizer import SPECIALS, Tokenizer, sentinels
from components.text.tokenizer.fast import FastTokenizer


class Writer:
    """A model with what it needs to generate."""

    def __init__(self, model: LanguageModel, tokens: Tokenizer | FastTokenizer, holes: Sequence[int] = (), name: str = "the model"):
        """`holes`: the ids that mark masks, in order. Raises SesameError where the family cannot generate."""
        self.model, self.tokens, self.holes = model, tokens, list(holes)
        self.decoding = decoding(family(model), name)
        self.reads_source, self.opening = reads_source(model), opening(model, tokens)
        self.end = tokens.suffix[-1]
        text = {self.end, *self.opening, *self.holes}
        self.forbidden = torch.tensor([i for i in self._not_text() if i not in text], dtype=torch.long)
        self.cut = 0
        """Number of sources that did not fit."""

    def _not_text(self) -> list[int]:
        return list(range(len(SPECIALS))) if isinstance(self.tokens, Tokenizer) else sorted(self.tokens.hidden)

    def source(self, text: str) -> list[int]:
        """The model's input for a text: a source, cut to fit, or a beginning. Each `[MASK]` is a gap to fill. Raises SesameError where the
        model can't mark one."""
        ids = gaps.encode(self.tokens, text, self.holes or [mark for mark in [self.tokens.mask] if mark is not None])
        if not self.reads_source:
            return [*self.tokens.prefix, *ids] or [self.end]
        room = self.model.max_length - len(self.tokens.prefix) - len(self.tokens.suffix)
        self.cut += len(ids) > room
        return [*self.tokens.prefix, *ids[:room], *self.tokens.suffix]

    def text(self, ids: list[int]) -> str:
        """The generated text; `<0>` precedes the text of the first gap."""
        texts: list[str] = []
        run: list[int] = []
        for i in [*ids, None]:
            if i is not None and i not in self.holes:
                run.append(i)
                continue
            texts += [self.tokens.decode(run)] if run else []
            texts += [f"<{self.holes.index(i)}>"] if i is not None else []
            run = []
        return " ".join(texts)

    def room(self, source: list[int], how: HowWritten) -> int:
        """The maximal number of new tokens for a source. Raises SesameError where there is no room."""
        left = self.model.max_length - (1 if self.reads_source else len(source))
        if left < 1:
            raise SesameError(f"the beginning has {len(source)} tokens, and the model reads {self.model.max_length}: shorten it")
        return min(how.max_new_tokens, left)

    def write(self, sources: list[list[int]], how: HowWritten, batch_size: int) -> list[list[int]]:
        """Generate a text for each source, without its end; the result does not depend on the batches."""
        return [texts[0] for texts in self.answers(sources, how, batch_size, 1)]

    def answers(self, sources: list[list[int]], how: HowWritten, batch_size: int, count: int) -> list[list[list[int]]]:
        """Generate a number of texts for each source: the best of its beams, or as many draws. The first is that of
        `write`."""
        beams = isinstance(how, Beam)
        inputs = sources if beams else sources * count  # a draw depends on its place in this list
        groups, texts = defaultdict(list), [[] for _ in inputs]
        for i, source in enumerate(inputs):  # beginnings are batched with others of the same length
            groups[0 if self.reads_source else len(source)].append(i)
        for group in groups.values():
            most = self.room(inputs[group[0]], how)
            group.sort(key=lambda i: len(inputs[i]))
            for start in range(0, len(group), batch_size):
                batch = group[start : start + batch_size]
                if beams:
                    results = search.beams(*self._start([inputs[i] for i in batch], most), how, self._limits(most))
                    for i, best in zip(batch, results, strict=True):
                        texts[i] = best[:count]
                else:
                    for rows, tokens in self._steps([inputs[i] for i in batch], batch, most, how):
                        for row, token in zip(rows.tolist(), tokens.tolist(), strict=True):
                            texts[batch[row]] += [token] if token != self.end else []
        return texts if beams else [texts[i :: len(sources)] for i in range(len(sources))]

    def stream(self, source: list[int], how: HowWritten) -> Iterator[str]:
        """Yield a text while it is generated, with any search but beams."""
        ids, shown = [], ""
        for _, tokens in self._steps([source], [0], self.room(source, how), how):
            ids += [int(tokens)] if int(tokens) != self.end else []
            text = self.text(ids)
            if not text.endswith("\ufffd"):  # an incomplete character
                yield text[len(shown) :]
                shown = text
        yield self.text(ids)[len(shown) :]

    def _start(self, sources: list[list[int]], most: int) -> tuple[search.Decoding, Callable[[torch.Tensor], torch.Tensor]]:
        ids = pad_sequence([torch.tensor(source) for source in sources], batch_first=True)
        lengths = torch.tensor([len(source) for source in sources])
        with torch.no_grad():
            decoding = self.decoding(self.model, ids, lengths, most + (1 if self.reads_source else ids.shape[1]))
        return decoding, self.model.logits

    def _steps(self, sources: list[list[int]], keys: list[int], most: int, how: HowWritten):
        return search.one_by_one(*self._start(sources, most), how, self._limits(most), torch.tensor(keys))

    def _limits(self, most: int) -> search.Limits:
        return search.Limits(self.end, self.forbidden, most, self.model.forced_end, self.model.forced_first)


def decoding(family: str, name: str) -> type[search.Decoding]:
    """The `Decoding` class of a family. Raises SesameError where it has none."""
    if not find_spec(f"components.models.{family}.decoding"):
        able = ", ".join(other for other in ARCHITECTURES if find_spec(f"components.models.{other}.decoding"))
        raise SesameError(f"{name} is of the family {family}, which does not generate from left to right (those that do: {able})")
    return import_module(f"components.models.{family}.decoding").Decoding


def family(model: LanguageModel) -> str:
    """The family of a model."""
    return type(model).__module__.split(".")[-2]


def reads_source(model: LanguageModel) -> bool:
    """Whether a model reads a source and generates a target, rather than continuing a text."""
    return hasattr(model, "encode")


def opening(model: LanguageModel, tokens: Tokenizer | FastTokenizer) -> list[int]:
    """The first tokens of a target: for BART the prefix of a text."""
    return tokens.prefix if reads_source(model) and not isinstance(tokens, Tokenizer) else []


def load(name: str, objective: params.Objective | None = None) -> Writer:
    """A writer with a model of data/models. `objective`: that of its training here, which defines how a gap in a text is marked.
    Raises SesameError where its family cannot generate."""
    folder = Path("data/models", name)
    decoding(store.about(folder).architecture.name, name)
    model, tokens = store.load(folder)
    if isinstance(tokens, Tokenizer):
        marks = sentinels.ids(tokens.vocab_size, objective.sentinels(model.max_length) if objective else 0)
    else:
        marks = gaps.imported_sentinels(tokens)
    return Writer(model.eval(), tokens, marks, name)


def of_params(all_params: params.Params, name: str) -> Writer:
    """The writer of a model of params.yaml, or of another one in data/models."""
    read = all_params.read_by(name)
    return load(name, read[-1][1] if read else None)
