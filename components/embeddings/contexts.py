"""Nearest neighbours of a word in context among words in context, in a layer of any model (Peters et al. 2018, table 4).

The vector of a word in context is the mean over its tokens; the neighbours of a static vector, for comparison, mix the word's senses.
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
"""Characters shown on each side of a word."""


@dataclass(frozen=True)
class Word:
    """One word of a text."""

    text: str
    start: int
    end: int
    """Characters of the word."""

    def lowered(self) -> str:
        """The word in lower case."""
        return self.text[self.start : self.end].lower()

    def shown(self) -> str:
        """The word between stars, with its context."""
        before, after = self.text[max(0, self.start - AROUND) : self.start], self.text[self.end : self.end + AROUND]
        return f"{before}*{self.text[self.start : self.end]}*{after}"


def marked(prompt: str) -> Word:
    """The word between stars in `a *play* in context`. Raises SesameError where there is not exactly one."""
    matches = list(MARKED.finditer(prompt))
    if len(matches) != 1:
        raise SesameError(f"one word between stars expected, as in 'a *play* in context'; {len(matches)} found")
    [mark] = matches
    return Word(prompt[: mark.start()] + mark[1] + prompt[mark.end() :], mark.start(), mark.end() - 2)


@torch.no_grad()
def embedded(
    model: LanguageModel, tokens: Tokenizer, texts: list[str], words: list[list[Word]], layer: int
) -> Iterator[tuple[Word, Tensor]]:
    """The `words` of each text with their unit vectors (width,) in a layer; 0 is the embedding.

    A text that is longer than the model reads is split into windows at words.
    """
    room = model.max_length - len(tokens.prefix) - len(tokens.suffix)
    rows, words_of = [], []
    for (ids, offsets), targets in zip(tokens.encode_offsets(texts), words, strict=True):
        starts, ends = np.array(offsets, dtype=np.int64).reshape(-1, 2).T
        # the first token of each word, and the one after its last
        spans = np.stack([np.searchsorted(ends, [word.start for word in targets], side="right"),
                          np.searchsorted(starts, [word.end for word in targets])], 1)  # fmt: skip
        present = np.flatnonzero(spans[:, 0] < spans[:, 1])
        for first, end in windows(len(ids), spans[present], room):
            rows.append(torch.tensor([*tokens.prefix, *ids[first:end], *tokens.suffix]))
            inside = present[slice(*np.searchsorted(spans[present, 0], [first, end]))].tolist()
            positions = (range(spans[i, 0] - first, min(spans[i, 1], end) - first) for i in inside)
            words_of.append(list(zip((targets[i] for i in inside), positions, strict=True)))
    for start in range(0, len(rows), BATCH):
        batch = rows[start : start + BATCH]
        lengths = torch.tensor([len(row) for row in batch])
        hidden = model.layers(pad_sequence(batch, batch_first=True, padding_value=PAD), lengths)[layer]
        for inside, vectors_of in zip(words_of[start : start + BATCH], hidden, strict=True):
            for word, positions in inside:
                yield word, normalize(vectors_of[[i + len(tokens.prefix) for i in positions]].mean(dim=0).float(), dim=0)


def windows(size: int, words: np.ndarray, room: int) -> Iterator[tuple[int, int]]:
    """First token and end of each window of at most `room` of the `size` tokens. `words` (n, 2) has the first token of each word
    and the one after its last: no window ends inside a word, unless the word alone is longer."""
    first = 0
    while first < size:
        end = min(first + room, size)
        before = np.searchsorted(words[:, 0], end) - 1  # the last word that begins before the end
        if before >= 0 and words[before, 1] > end and words[before, 0] > first:
            end = int(words[before, 0])
        yield first, end
        first = end


def layer_of(model: LanguageModel, name: str, layer: int | None) -> int:
    """The layer, by default the last. Raises SesameError where the model has no such layer."""
    if layer is not None and not 0 <= layer <= model.num_layers:
        raise SesameError(f"model {name} has no layer {layer} (0, the embedding, to {model.num_layers})")
    return model.num_layers if layer is None else layer


def words_in(text: str) -> list[Word]:
    """All words of a text."""
    return [Word(text, match.start(), match.end()) for match in WORD.finditer(text)]


def neighbours(name: str, prompt: str, corpus: str, layer: int | None, segments: int, k: int) -> tuple[int, int, list[tuple[float, str]]]:
    """Return the layer, the number of segments that were searched, and the k words in context that are nearest to the marked one:
    cosine, context. The first `segments` segments of a corpus' validation text are searched.

    `name` is a model of data/models. Raises SesameError where the model has no such layer, or the prompt is too long.
    """
    query = marked(prompt)
    compute.prepare(None)
    model, tokens = store.load(Path("data/models", name))
    model.eval()
    layer = layer_of(model, name, layer)
    size = len(tokens.prefix) + len(tokens.encode([query.text])[0]) + len(tokens.suffix)
    if size > model.max_length:
        raise SesameError(f"the prompt has {size} tokens, and model {name} reads {model.max_length}: shorten it")
    occurrences = list(embedded(model, tokens, [query.text], [[query]], layer))
    if not occurrences:
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
        raise SesameError(f"data/corpora/{corpus} has no validation text to search for neighbours")
    scores, rows = nearest(occurrences[0][1][None], torch.stack(bank), 10 * k)
    shown: dict[str, float] = {}
    for score, row in zip(scores[0].tolist(), rows[0].tolist(), strict=True):
        shown.setdefault(words[row].shown(), score)  # repeated sentences are shown once
    return layer, len(texts), [(score, text) for text, score in islice(shown.items(), k)]


def without_context(name: str, word: str, k: int) -> list[tuple[float, str]]:
    """The k nearest words by the static vectors `data/vectors/<name>`. Raises SesameError where they do not have the word."""
    space = load(Path("data/vectors", name))
    word = next((form for form in (written(word, lowercase) for lowercase in (False, True)) if form in space.words), word)
    if word not in space.words:
        raise SesameError(f"data/vectors/{name} has no vector of {word!r}")
    row, rows = space.words.index(word), torch.from_numpy(normalise(space.vectors).astype(np.float32))
    scores, indices = nearest(rows[row][None], rows, k + 1)
    return [(score, space.words[i]) for score, i in zip(scores[0].tolist(), indices[0].tolist(), strict=True) if i != row][:k]


def corpus_of(all_params: params.Params, name: str) -> str:
    """The corpus that a model was trained on. Raises SesameError for an imported model."""
    root = all_params.root(name)
    if name not in all_params.all_models:
        raise SesameError(f"no model {name!r} in params.yaml (there are: {', '.join(all_params.all_models) or 'none'})")
    if root not in all_params.models:
        raise SesameError(f"model {name} was not pre-trained here: name a corpus of params.yaml with --corpus")
    return all_params.encodings[all_params.models[root].encoding].corpus
