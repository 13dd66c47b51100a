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

from components import params
from components.core import compute
from components.core.errors import SesameError
from components.embeddings.maps import normalise
from components.embeddings.neighbours import nearest
from components.embeddings.space import WORD, load, written
from components.models import store
from components.models.contract import LanguageModel
from components.text import corpora
from components.text.tokenizer import PAD, Tokenizer

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
    """Each of the `words` of each text, with its unit vector (width,) in that layer; 0 is below all context.

    A text that is longer than the model reads is read in several windows, which end before a word.
    """
    room = model.max_length - len(tokens.prefix) - len(tokens.suffix)
    rows, asked = [], []
    for (ids, offsets), own in zip(tokens.encode_offsets(texts), words, strict=True):
        starts, ends = np.array(offsets, dtype=np.int64).reshape(-1, 2).T
        # of each word its first piece, and the one after its last
        places = np.stack([np.searchsorted(ends, [word.start for word in own], side="right"),
                           np.searchsorted(starts, [word.end for word in own])], 1)  # fmt: skip
        there = np.flatnonzero(places[:, 0] < places[:, 1])
        for first, end in windows(len(ids), places[there], room):
            rows.append(torch.tensor([*tokens.prefix, *ids[first:end], *tokens.suffix]))
            inside = there[slice(*np.searchsorted(places[there, 0], [first, end]))].tolist()
            pieces = (range(places[i, 0] - first, min(places[i, 1], end) - first) for i in inside)
            asked.append(list(zip((own[i] for i in inside), pieces, strict=True)))
    for at in range(0, len(rows), BATCH):
        part = rows[at : at + BATCH]
        lengths = torch.tensor([len(row) for row in part])
        hidden = model.layers(pad_sequence(part, batch_first=True, padding_value=PAD), lengths)[layer]
        for inside, vectors_of in zip(asked[at : at + BATCH], hidden, strict=True):
            for word, pieces in inside:
                yield word, normalize(vectors_of[[i + len(tokens.prefix) for i in pieces]].mean(dim=0).float(), dim=0)


def windows(size: int, words: np.ndarray, room: int) -> Iterator[tuple[int, int]]:
    """The first piece of each window of at most `room` of so many pieces, and its end. `words` (n, 2) are the first piece
    of each word and the one after its last: no window ends within a word, unless that word alone is longer."""
    first = 0
    while first < size:
        end = min(first + room, size)
        before = np.searchsorted(words[:, 0], end) - 1  # the last word that begins before the end
        if before >= 0 and words[before, 1] > end and words[before, 0] > first:
            end = int(words[before, 0])
        yield first, end
        first = end


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

    Of the model `data/models/<name>`. Raises SesameError where the model has no such layer, or does not read all of the
    prompt.
    """
    asked = marked(prompt)
    compute.prepare(None)
    model, tokens = store.load(Path("data/models", name))
    model.eval()
    layer = layer_of(model, name, layer)
    size = len(tokens.prefix) + len(tokens.encode([asked.text])[0]) + len(tokens.suffix)
    if size > model.max_length:
        raise SesameError(f"the prompt has {size} tokens, and model {name} reads {model.max_length}: shorten it")
    found = list(embedded(model, tokens, [asked.text], [[asked]], layer))
    if not found:
        raise SesameError(f"model {name} has no token for the marked word of {prompt!r}: mark another one")
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
    own = next((own for own in (written(word, small) for small in (False, True)) if own in space.words), word)
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
