"""Treebanks: sentences whose words have a tag, a head and a relation to it, and what a model has at each of these
words."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from components.core import storage
from components.core.errors import SesameError
from components.core.keyed import generator
from components.evaluations.config import TreebankEvaluation
from components.evaluations.minimal_pairs.words import tokens
from components.evaluations.reading import AnyTokenizer, by_length, device_of, padded, reading
from components.models.contract import LanguageModel
from components.text import corpora, sources
from components.text.sources.file import SourceFile
from components.text.sources.text import lines

PUNCTUATION = "PUNCT"
TOKENS = 4096
"""Of a batch at most, padding among them."""


@dataclass(frozen=True)
class Sentence:
    """A sentence of Universal Dependencies (Nivre et al. 2020)."""

    words: list[str]
    tags: list[str]
    """Of each word its part of speech."""
    heads: list[int]
    """Of each word the number of the one that it depends on, from 1; 0: the root."""
    relations: list[str]
    """Of each word what it is to its head, without the language's subtype."""

    @cached_property
    def text(self) -> str:
        return " ".join(self.words)

    @cached_property
    def spans(self) -> list[tuple[int, int]]:
        """Of each word its characters in the text, (first, end)."""
        ends = np.cumsum([len(word) + 1 for word in self.words]) - 1
        return [(int(end) - len(word), int(end)) for end, word in zip(ends, self.words, strict=True)]

    @cached_property
    def depths(self) -> list[int]:
        """Of each word how many steps it is from the root."""
        return [len(above) - 1 for above in self._paths]

    @cached_property
    def distances(self) -> np.ndarray:
        """(words, words) float32: how many edges of the tree are between two words."""
        distances = np.zeros((len(self.words), len(self.words)), np.float32)
        for i, one in enumerate(self._paths):
            for j, other in enumerate(self._paths[:i]):
                distances[i, j] = distances[j, i] = len(one) + len(other) - 2 * len({*one} & {*other})
        return distances

    @cached_property
    def _paths(self) -> list[list[int]]:
        """Of each word itself, its head, the head of that, up to the root."""
        paths = []
        for word in range(len(self.words)):
            path = [word]
            while self.heads[path[-1]]:
                path.append(self.heads[path[-1]] - 1)
            paths.append(path)
        return paths


def read(files: Iterable[SourceFile], columns: Sequence[str]) -> Iterator[Sentence]:
    """Sentences of files: a word a line with a tab between its `columns`, `#` before comments, an empty line after each
    sentence.

    Multiword tokens (`3-4`) and empty words (`8.1`) of CoNLL-U are left out. Raises SesameError that names file and
    line for another number of columns, a head that is no word of the sentence, a word without a form, a sentence
    without a root, and heads in a circle.
    """
    places = {name: columns.index(name) for name in ("form", "upos", "head", "deprel")}
    for file in files:
        words, start = [], 1
        for number, line in chain(lines(file), [(0, "")]):
            if line.strip():
                fields = line.split("\t")
                if line.startswith("#") and ("id" in columns or len(fields) != len(columns)):  # `#` is a word, too
                    continue
                if not words:
                    start = number
                if len(fields) != len(columns):
                    raise SesameError(
                        f"{file.name}, line {number}: {len(fields)} fields, where columns names {len(columns)} ({', '.join(columns)})"
                    )
                if "id" in columns and not fields[columns.index("id")].isdecimal():
                    continue
                words.append([fields[place] for place in places.values()])
            elif words:
                yield _checked(words, f"{file.name}, line {start}")
                words = []


def _checked(rows: list[list[str]], place: str) -> Sentence:
    words, tags, heads, relations = map(list, zip(*rows, strict=True))
    if wrong := [head for head in heads if not head.isdecimal() or int(head) > len(words)]:
        raise SesameError(
            f"{place}: head {wrong[0]!r}: a number from 0 to {len(words)}, the words of the sentence, expected"
        )
    if not all(word.strip() for word in words):
        raise SesameError(f"{place}: a form is empty; fill it, or leave the sentence out")
    numbers = [int(head) for head in heads]
    if numbers.count(0) != 1:
        raise SesameError(f"{place}: {numbers.count(0)} words have head 0: one root expected")
    for word in range(len(words)):
        steps, at = 0, word
        while numbers[at]:
            at, steps = numbers[at] - 1, steps + 1
            if steps > len(words):
                raise SesameError(f"{place}: the heads of word {word + 1} go in a circle")
    return Sentence(words, tags, numbers, [relation.partition(":")[0] for relation in relations])


def write(file: Path, sentences: Iterable[Sentence]) -> None:
    """A sentence a line, as JSON."""
    with file.open("w", encoding="utf-8") as out:
        out.writelines(json.dumps(asdict(sentence), ensure_ascii=False) + "\n" for sentence in sentences)


def read_written(file: Path) -> list[Sentence]:
    """Raises SesameError for a file that is not there, or not as `write` writes it."""
    with storage.reading(file):
        if not (sentences := [Sentence(**row) for row in storage.read_lines(file)]):
            raise ValueError("it is empty")
        return sentences


def drawn(sentences: Sequence[Sentence], count: int) -> list[Sentence]:
    """Sentences that have so many words together, or all: files begin with one genre, so they are drawn, the same ones
    each time."""
    chosen, words = [], 0
    for i in generator(0).permutation(len(sentences)):
        if words >= count:
            break
        chosen.append(sentences[i])
        words += len(sentences[i].words)
    return chosen


class Rows(NamedTuple):
    """Sentences as a model reads them."""

    ids: list[list[int]]
    """With the specials around each."""
    words: list[list[int]]
    """Of each id the number of its word from 0; -1: a special, or a character of no word."""
    fits: np.ndarray
    """(sentences,): false where one is longer than the model reads, or a word has no id."""


def rows(model: LanguageModel, tokenizer: AnyTokenizer, sentences: Sequence[Sentence]) -> Rows:
    """An id belongs to the word that most of its characters are of."""
    all_ids, all_words, fits = [], [], []
    for sentence, (ids, spans) in zip(
        sentences, tokenizer.encode_offsets([own.text for own in sentences]), strict=True
    ):
        owner = np.full(len(sentence.text) + 1, -1)
        for number, (first, end) in enumerate(sentence.spans):
            owner[first:end] = number
        words = []
        for first, end in spans:
            inside = owner[first:end][owner[first:end] >= 0]
            words.append(int(np.bincount(inside).argmax()) if inside.size else -1)
        all_ids.append([*tokenizer.prefix, *ids, *tokenizer.suffix])
        all_words.append([*[-1] * len(tokenizer.prefix), *words, *[-1] * len(tokenizer.suffix)])
        fits.append(len(all_ids[-1]) <= model.max_length and set(range(len(sentence.words))) <= set(words))
    return Rows(all_ids, all_words, np.array(fits, bool))


def batches(own: Rows) -> Iterator[tuple[list[int], Tensor, Tensor]]:
    """Which sentences, their ids (batch, length) and lengths (batch,): those that fit, the shortest first."""
    order = sorted(np.flatnonzero(own.fits).tolist(), key=lambda i: len(own.ids[i]))
    for batch in by_length([len(own.ids[i]) for i in order], 0, TOKENS):
        some = order[batch.start : batch.stop]
        yield some, *padded([own.ids[i] for i in some], torch.device("cpu"))


def windows(model: LanguageModel, tokenizer: AnyTokenizer, own: Rows) -> tuple[Rows, list[int]]:
    """Sentences in as few parts of whole words as the model can read, and of each part the number of its sentence.

    A word with more ids than the model reads, and one without any, fits into none.
    """
    before, after = list(tokenizer.prefix), list(tokenizer.suffix)
    room = model.max_length - len(before) - len(after)
    all_ids, all_words, sentences = [], [], []
    for number, (ids, words) in enumerate(zip(own.ids, own.words, strict=True)):
        text = range(len(before), len(ids) - len(after))
        starts = [at for at in text if at == text.start or words[at] != words[at - 1]]
        parts, start = [], text.start
        for at, end in zip(starts, [*starts[1:], text.stop], strict=True):
            if end - start > room:  # this word opens the next part
                parts.append((start, at))
                start = at
        for first, last in [*parts, (start, text.stop)]:
            if first < last <= first + room:
                all_ids.append([*before, *ids[first:last], *after])
                all_words.append([*[-1] * len(before), *words[first:last], *[-1] * len(after)])
                sentences.append(number)
    return Rows(all_ids, all_words, np.ones(len(all_ids), bool)), sentences


def word_vectors(model: LanguageModel, tokenizer: AnyTokenizer, sentences: Sequence[Sentence]) -> list[Tensor]:
    """Of each sentence the mean over the ids of each word, in every layer, the embedding first: (layers + 1, words,
    width) float32.

    A sentence that is longer than the model reads is read in parts. What no part has, as a word without an id, is NaN.
    """
    device = device_of(model)
    parts, of = windows(model, tokenizer, rows(model, tokenizer, sentences))
    vectors = [torch.full((model.num_layers + 1, len(own.words), model.width), torch.nan) for own in sentences]
    with reading(model):
        for some, ids, lengths in batches(parts):
            # (layers + 1, batch, length, width)
            states = torch.stack(model.layers(ids.to(device), lengths.to(device))).float()
            for row, i in enumerate(some):
                words, own = torch.tensor(parts.words[i], device=device), vectors[of[i]]
                real = words >= 0
                sums = states.new_zeros(len(states), own.shape[1], states.shape[3])
                sums.index_add_(1, words[real], states[:, row, : len(words)][:, real])
                counts = torch.bincount(words[real], minlength=own.shape[1])
                there = counts > 0  # each word is in one part
                own[:, there.cpu()] = (sums[:, there] / counts[there, None]).cpu()
    return vectors


def prepare(folder: Path, block: TreebankEvaluation) -> dict:
    """Write train.jsonl and test.jsonl; how many sentences and words each has, and how many words of test the corpus
    has.

    Raises SesameError where a split has no sentence.
    """
    known = {
        word
        for document in corpora.read(Path("data/corpora", block.corpus), "train")
        for line in document
        for word in tokens(line)
    }
    figures: dict[str, int] = {}
    for split, treebank, count in (("train", block.train, block.train_words), ("test", block.test, block.test_words)):
        chosen = drawn([*read(sources.open_files(treebank.source), treebank.columns)], count)
        if not chosen:
            raise SesameError(f"{treebank.source.shown}: no sentence in it")
        write(folder / f"{split}.jsonl", chosen)
        figures |= {f"{split}_sentences": len(chosen), f"{split}_words": sum(len(own.words) for own in chosen)}
    there = sum(word.lower() in known for own in chosen for word in own.words)
    print(
        ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in figures.items())
        + f"; the corpus has {there:,} of test's"
    )
    return figures | {"test_words_in_corpus": there}
