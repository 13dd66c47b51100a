"""A word in its context among words in theirs, by a layer of any model: Peters et al. 2018, table 4, with a word of one's own.

A word's vector in context is the mean over its pieces; a list of words without context, beside it, mixes its senses.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize
from torch.nn.utils.rnn import pad_sequence

from components import compute, corpora, params
from components.errors import SesameError
from components.models import store
from components.models.contract import LanguageModel
from components.spaces.maps import normalise
from components.spaces.neighbours import nearest
from components.spaces.space import WORD, load
from components.tokenizer import PAD, Tokenizer

MARKED = re.compile(r"\*(\S[^*]*)\*")
BATCH = 64
AROUND = 40
"""Characters shown to each side of a word."""


@dataclass(frozen=True)
class Word:
    """One word of a text."""

    text: str
    start: int
    end: int
    """Characters."""

    def lowered(self) -> str:
        """The word alone, in lower case."""
        return self.text[self.start : self.end].lower()

    def shown(self) -> str:
        """The word between stars, with what stands around it."""
        before, after = self.text[max(0, self.start - AROUND) : self.start], self.text[self.end : self.end + AROUND]
        return f"{before}*{self.text[self.start : self.end]}*{after}"


def marked(prompt: str) -> Word:
    """The word between stars of `a *play* in context`. Raises SesameError where there is none, or more than one."""
    found = list(MARKED.finditer(prompt))
    if len(found) != 1:
        raise SesameError(f"one word between stars expected, as in 'a *play* in context'; {len(found)} found")
    [mark] = found
    return Word(prompt[: mark.start()] + mark[1] + prompt[mark.end() :], mark.start(), mark.end() - 2)


@torch.no_grad()
def embedded(
    model: LanguageModel, tokens: Tokenizer, texts: list[str], words: list[list[Word]], layer: int
) -> Iterator[tuple[Word, Tensor]]:
    """Each of the `words` of each text that fits the model, with its unit vector (width,) in that layer; 0 is below all context."""
    room = model.max_length - len(tokens.prefix) - len(tokens.suffix)
    encoded = [(ids[:room], offsets[:room]) for ids, offsets in tokens.encode_offsets(texts)]
    rows = [torch.tensor([*tokens.prefix, *ids, *tokens.suffix]) for ids, _ in encoded]
    lengths = torch.tensor([len(row) for row in rows])
    hidden = model.layers(pad_sequence(rows, batch_first=True, padding_value=PAD), lengths)[layer]
    for (_, offsets), own, vectors_of in zip(encoded, words, hidden, strict=True):
        for word in own:
            pieces = [i for i, (start, end) in enumerate(offsets) if start < word.end and end > word.start]
            if pieces:
                yield word, normalize(vectors_of[[i + len(tokens.prefix) for i in pieces]].mean(dim=0).float(), dim=0)


def layer_of(model: LanguageModel, name: str, layer: int | None) -> int:
    """The layer that is asked for, None for the last. Raises SesameError where the model has no such layer."""
    if layer is not None and not 0 <= layer <= model.num_layers:
        raise SesameError(f"model {name} has no layer {layer} (0, below all context, to {model.num_layers})")
    return model.num_layers if layer is None else layer


def words_in(text: str) -> list[Word]:
    """Every word of a text."""
    return [Word(text, match.start(), match.end()) for match in WORD.finditer(text)]


def neighbours(name: str, prompt: str, corpus: str, layer: int | None, segments: int, k: int) -> tuple[int, list[tuple[float, str]]]:
    """The layer, and the k words in context of a corpus' validation text nearest to the marked one: cosine, context.

    Of the model `data/models/<name>`. Raises SesameError where the model has no such layer, or nothing marked is left of the prompt.
    """
    asked = marked(prompt)
    compute.prepare(None)
    model, tokens = store.load(Path("data/models", name))
    model.eval()
    layer = layer_of(model, name, layer)
    found = list(embedded(model, tokens, [asked.text], [[asked]], layer))
    if not found:
        raise SesameError(f"the marked word stands beyond the {model.max_length} tokens that model {name} reads")
    bank: list[Tensor] = []
    words: list[Word] = []
    texts = list(islice(chain.from_iterable(corpora.read(Path("data/corpora", corpus), "valid")), segments))
    for i in range(0, len(texts), BATCH):
        batch = texts[i : i + BATCH]
        for word, vector in embedded(model, tokens, batch, [words_in(text) for text in batch], layer):
            words.append(word)
            bank.append(vector)
    if not bank:
        raise SesameError(f"data/corpora/{corpus} has no validation text to look for neighbours in")
    scores, rows = nearest(found[0][1][None], torch.stack(bank), 10 * k)
    shown: dict[str, float] = {}
    for score, row in zip(scores[0].tolist(), rows[0].tolist(), strict=True):
        shown.setdefault(words[row].shown(), score)  # a sentence that comes again is shown once
    return layer, [(score, text) for text, score in islice(shown.items(), k)]


def without_context(name: str, word: str, k: int) -> list[tuple[float, str]]:
    """The k words nearest to a word by the vectors `data/vectors/<name>`. Raises SesameError where they have no such word."""
    space = load(Path("data/vectors", name))
    own = word if word in space.words else word.lower()
    if own not in space.words:
        raise SesameError(f"data/vectors/{name} has no vector of {own!r}")
    row, rows = space.words.index(own), torch.from_numpy(normalise(space.vectors).astype(np.float32))
    scores, places = nearest(rows[row][None], rows, k + 1)
    return [(score, space.words[place]) for score, place in zip(scores[0].tolist(), places[0].tolist(), strict=True) if place != row][:k]


def corpus_of(all_params: params.Params, name: str) -> str:
    """The text that a model was trained on. Raises SesameError where it was trained elsewhere."""
    root = all_params.root(name)
    if root not in all_params.models:
        raise SesameError(f"model {name} was not pre-trained here: name a corpus of params.yaml with --corpus")
    return all_params.encodings[all_params.models[root].encoding].corpus
