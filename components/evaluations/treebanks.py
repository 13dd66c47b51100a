"""Treebanks: sentences whose words have a tag, a head and a relation to it, and a model's vectors of these words."""

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

from components.core.errors import SesameError
from components.core.keyed import generator
from components.evaluations.config import COLUMNS_READ, TreebankEvaluation
from components.evaluations.inference import AnyTokenizer, by_length, device_of, inference, padded
from components.evaluations.minimal_pairs.words import tokens
from components.models.contract import LanguageModel
from components.stages.outputs import read_lines, reading
from components.text import corpora, sources
from components.text.sources.file import SourceFile
from components.text.sources.text import lines

PUNCTUATION = "PUNCT"
TOKENS = 4096
"""In a batch at most, with padding."""


@dataclass(frozen=True)
class Sentence:
    """A sentence of Universal Dependencies (Nivre et al. 2020)."""

    words: list[str]
    tags: list[str]
    """The part of speech of each word."""
    heads: list[int]
    """The index of each word's head, from 1; 0: the root."""
    relations: list[str]
    """The relation of each word to its head, without the language's subtype."""

    @cached_property
    def text(self) -> str:
        return " ".join(self.words)

    @cached_property
    def spans(self) -> list[tuple[int, int]]:
        """The characters of each word in the text, (first, end)."""
        ends = np.cumsum([len(word) + 1 for word in self.words]) - 1
        return [(int(end) - len(word), int(end)) for end, word in zip(ends, self.words, strict=True)]

    @cached_property
    def depths(self) -> list[int]:
        """The number of edges between each word and the root."""
        return [len(path) - 1 for path in self._paths]

    @cached_property
    def distances(self) -> np.ndarray:
        """(words, words) float32: the number of edges of the tree between two words."""
        distances = np.zeros((len(self.words), len(self.words)), np.float32)
        for i, one in enumerate(self._paths):
            for j, other in enumerate(self._paths[:i]):
                distances[i, j] = distances[j, i] = len(one) + len(other) - 2 * len({*one} & {*other})
        return distances

    @cached_property
    def _paths(self) -> list[list[int]]:
        """For each word the path from it to the root."""
        paths = []
        for word in range(len(self.words)):
            path = [word]
            while self.heads[path[-1]]:
                path.append(self.heads[path[-1]] - 1)
            paths.append(path)
        return paths


def read(files: Iterable[SourceFile], columns: Sequence[str]) -> Iterator[Sentence]:
    """Read sentences: one word per line with a tab between its `columns`, `#` before comments, an empty line after each
    sentence.

    Multiword tokens (`3-4`) and empty words (`8.1`) of CoNLL-U are left out. Raises SesameError with file and
    line for another number of columns, a head that is not a word of the sentence, a word without a form, a sentence
    without a root, and a cycle of heads.
    """
    fields_read = {name: columns.index(name) for name in COLUMNS_READ}
    for file in files:
        words, start = [], 1
        for number, line in chain(lines(file), [(0, "")]):
            if line.strip():
                fields = line.split("\t")
                if line.startswith("#") and ("id" in columns or len(fields) != len(columns)):  # `#` can be a word
                    continue
                if not words:
                    start = number
                if len(fields) != len(columns):
                    raise SesameError(
                        f"{file.name}, line {number}: {len(fields)} fields, where columns names {len(columns)} ({', '.join(columns)})"
                    )
                if "id" in columns and not fields[columns.index("id")].isdecimal():
                    continue
                words.append([fields[index] for index in fields_read.values()])
                if "id" in columns and int(word_id := fields[columns.index("id")]) != len(words):
                    raise SesameError(
                        f"{file.name}, line {number}: id {word_id}, where {len(words)} is next; "
                        "heads count the words from 1"
                    )
            elif words:
                yield _checked(words, f"{file.name}, line {start}")
                words = []


def _checked(rows: list[list[str]], place: str) -> Sentence:
    words, tags, heads, relations = map(list, zip(*rows, strict=True))
    if wrong := [head for head in heads if not head.isdecimal() or int(head) > len(words)]:
        raise SesameError(f"{place}: head {wrong[0]!r}: a number from 0 to {len(words)}, the words of the sentence, expected")
    if not all(word.strip() for word in words):
        raise SesameError(f"{place}: a form is empty; fill it, or leave the sentence out")
    numbers = [int(head) for head in heads]
    if numbers.count(0) != 1:
        raise SesameError(f"{place}: {numbers.count(0)} words have head 0: one root expected")
    for word in range(len(words)):
        steps, current = 0, word
        while numbers[current]:
            current, steps = numbers[current] - 1, steps + 1
            if steps > len(words):
                raise SesameError(f"{place}: the heads of word {word + 1} form a cycle")
    return Sentence(words, tags, numbers, [relation.partition(":")[0] for relation in relations])


def write(file: Path, sentences: Iterable[Sentence]) -> None:
    """Write one sentence per line, as JSON."""
    with file.open("w", encoding="utf-8") as out:
        out.writelines(json.dumps(asdict(sentence), ensure_ascii=False) + "\n" for sentence in sentences)


def read_written(file: Path) -> list[Sentence]:
    """Read the file of `write`. Raises SesameError where it is missing or malformed."""
    with reading(file):
        if not (sentences := [Sentence(**row) for row in read_lines(file)]):
            raise ValueError("it is empty")
        return sentences


def drawn(sentences: Sequence[Sentence], count: int) -> list[Sentence]:
    """Sentences with `count` words in total, or all of them: drawn with a fixed seed, since files begin with one genre."""
    chosen, words = [], 0
    for i in generator(0).permutation(len(sentences)):
        if words >= count:
            break
        chosen.append(sentences[i])
        words += len(sentences[i].words)
    return chosen


class EncodedSentences(NamedTuple):
    """Sentences as inputs of a model."""

    ids: list[list[int]]
    """With special tokens."""
    words: list[list[int]]
    """The index of each id's word, from 0; -1: a special token, or a character outside words."""
    fits: np.ndarray
    """(sentences,): False where one is longer than the model reads, or a word has no id."""


def encode(model: LanguageModel, tokenizer: AnyTokenizer, sentences: Sequence[Sentence]) -> EncodedSentences:
    """Encode sentences; an id belongs to the word of most of its characters."""
    all_ids, all_words, fits = [], [], []
    encoded = tokenizer.encode_offsets([sentence.text for sentence in sentences])
    for sentence, (ids, spans) in zip(sentences, encoded, strict=True):
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
    return EncodedSentences(all_ids, all_words, np.array(fits, bool))


def batches(encoded: EncodedSentences) -> Iterator[tuple[list[int], Tensor, Tensor]]:
    """Indices of sentences, their ids (batch, length) and lengths (batch,): those that fit, in ascending order of length."""
    order = sorted(np.flatnonzero(encoded.fits).tolist(), key=lambda i: len(encoded.ids[i]))
    for batch in by_length([len(encoded.ids[i]) for i in order], 0, TOKENS):
        some = order[batch.start : batch.stop]
        yield some, *padded([encoded.ids[i] for i in some], torch.device("cpu"))


def windows(model: LanguageModel, tokenizer: AnyTokenizer, encoded: EncodedSentences) -> tuple[EncodedSentences, list[int]]:
    """Split sentences at words into as few windows as the model needs; returns them and the index of each one's sentence.

    A word with more ids than the model reads, or without ids, is in no window.
    """
    before, after = list(tokenizer.prefix), list(tokenizer.suffix)
    room = model.max_length - len(before) - len(after)
    all_ids, all_words, sentences = [], [], []
    for number, (ids, words) in enumerate(zip(encoded.ids, encoded.words, strict=True)):
        text = range(len(before), len(ids) - len(after))
        starts = [i for i in text if i == text.start or words[i] != words[i - 1]]
        spans, start = [], text.start
        for first, end in zip(starts, [*starts[1:], text.stop], strict=True):
            if end - start > room:  # this word begins the next window
                spans.append((start, first))
                start = first
        for first, last in [*spans, (start, text.stop)]:
            if first < last <= first + room:
                all_ids.append([*before, *ids[first:last], *after])
                all_words.append([*[-1] * len(before), *words[first:last], *[-1] * len(after)])
                sentences.append(number)
    return EncodedSentences(all_ids, all_words, np.ones(len(all_ids), bool)), sentences


def word_vectors(model: LanguageModel, tokenizer: AnyTokenizer, sentences: Sequence[Sentence]) -> list[Tensor]:
    """For each sentence the vectors of its words in every layer, the embedding first, as means over their ids: (layers + 1,
    words, width) float32.

    A sentence that is longer than the model reads is split into windows. Words in no window are NaN.
    """
    device = device_of(model)
    parts, sentence_of = windows(model, tokenizer, encode(model, tokenizer, sentences))
    vectors = [torch.full((model.num_layers + 1, len(sentence.words), model.width), torch.nan) for sentence in sentences]
    with inference(model):
        for some, ids, lengths in batches(parts):
            # (layers + 1, batch, length, width)
            states = torch.stack(model.layers(ids.to(device), lengths.to(device))).float()
            for row, i in enumerate(some):
                words, target = torch.tensor(parts.words[i], device=device), vectors[sentence_of[i]]
                real = words >= 0
                sums = states.new_zeros(len(states), target.shape[1], states.shape[3])
                sums.index_add_(1, words[real], states[:, row, : len(words)][:, real])
                counts = torch.bincount(words[real], minlength=target.shape[1])
                mask = counts > 0  # each word is in one window
                target[:, mask.cpu()] = (sums[:, mask] / counts[mask, None]).cpu()
    return vectors


def prepare(folder: Path, block: TreebankEvaluation) -> dict:
    """Write train.jsonl and test.jsonl; returns the numbers of sentences and words, and how many words of test occur in the
    corpus. Raises SesameError where a split has no sentence.
    """
    known = {word for document in corpora.read(Path("data/corpora", block.corpus), "train") for line in document for word in tokens(line)}
    figures: dict[str, int] = {}
    of_train: set[tuple[str, ...]] = set()
    for split, treebank, count in (("train", block.train, block.train_words), ("test", block.test, block.test_words)):
        chosen = drawn([*read(sources.open_files(treebank.source), treebank.columns)], count)
        if not chosen:
            raise SesameError(f"{treebank.source.shown}: no sentences")
        unseen = [sentence for sentence in chosen if tuple(sentence.words) not in of_train]  # of train itself all
        if seen := len(chosen) - len(unseen):
            print(f"{seen:,} of {len(chosen):,} test sentences are left out: train has them, too", flush=True)
        if not unseen:
            raise SesameError(f"{treebank.source.shown}: all test sentences are among those of train; name other files")
        chosen = unseen
        of_train |= {tuple(sentence.words) for sentence in chosen}
        write(folder / f"{split}.jsonl", chosen)
        figures |= {f"{split}_sentences": len(chosen), f"{split}_words": sum(len(sentence.words) for sentence in chosen)}
    in_corpus = sum(word.lower() in known for sentence in chosen for word in sentence.words)
    shown = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in figures.items())
    print(f"{shown}; the corpus has {in_corpus:,} of test's")
    return figures | {"test_words_in_corpus": in_corpus}
