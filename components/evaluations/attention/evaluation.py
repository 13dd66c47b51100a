"""Attention heads as an evaluation: which of them find the syntactic head of a word.

Clark et al. 2019, "What does BERT look at?": section 4, and from section 3 where the attention of a head goes overall.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from components.core.errors import SesameError
from components.evaluations import treebanks
from components.evaluations.attention import maps
from components.evaluations.attention.config import Attention
from components.evaluations.contract import Answers, check_answers
from components.evaluations.inference import AnyTokenizer
from components.evaluations.treebanks import PUNCTUATION, Sentence
from components.models.contract import LanguageModel

DIRECTIONS = ("dependent_to_head", "head_to_dependent")
"""A word finds its head where it attends to it most, or where of all words the head attends to it most."""
MIN_WORDS = 50
"""Words in test that a relation needs for its best head to be reported."""


def prepare(folder: Path, block: Attention) -> dict:
    """Write the sentences of both splits; returns their numbers. Raises SesameError where a split has none."""
    return treebanks.prepare(folder, block)


def evaluate(folder: Path, model: LanguageModel, tokens: AnyTokenizer, name: str) -> Answers:
    """Raises SesameError for a model without attention, and where it can read too few sentences."""
    splits = [treebanks.read_written(folder / f"{split}.jsonl") for split in ("train", "test")]
    train, test = (attend(model, tokens, sentences, name) for sentences in splits)
    items, known = test.items, test.known
    # a random twin selects its own heads
    by_head = select(train.right[:, train.known], train.items.relations[train.known])
    by_offset = select_offsets(train.items, train.known)
    right = correct(by_head, test.right, items.relations)
    offset_right = np.array([by_offset.get(relation) for relation in items.relations.tolist()]) == items.offsets
    figures = {
        "references": {"offset": float(offset_right[known].mean())},
        "heads": test.heads,
        "best": best(by_head, by_offset, test, right, offset_right),
    }
    table = {"word": items.words, "head": items.heads, "label": items.relations, "offset": offset_right.astype(int)}
    answers = Answers(
        "best head for each relation", np.where(known, right, np.nan), items.relations, np.ones(len(known)),
        pd.DataFrame(table), figures, clusters=items.sentences,
    )  # fmt: skip
    return check_answers(answers, name)


def best(
    by_head: Mapping[str, int], by_offset: Mapping[str, int], test: "Attended", right: np.ndarray, offset_right: np.ndarray
) -> dict[str, dict[str, Any]]:
    """For each relation with at least `MIN_WORDS` words in test: the selected attention head and offset (in words, to the
    syntactic head), and their accuracies. right, offset_right (items,): whether they are right."""
    shown = {}
    for relation, candidate in by_head.items():
        members = test.known & (test.items.relations == relation)
        if members.sum() < MIN_WORDS:
            continue
        direction, index = divmod(candidate, len(test.heads))
        shown[relation] = {
            "layer": test.heads[index]["layer"],
            "head": test.heads[index]["head"],
            "direction": DIRECTIONS[direction],
            "accuracy": float(right[members].mean()),
            "offset": by_offset[relation],
            "offset_accuracy": float(offset_right[members].mean()),
            "words": int(members.sum()),
        }
    return shown


class Items(NamedTuple):
    """All words that depend on another one; arrays (items,)."""

    words: np.ndarray
    heads: np.ndarray
    """Their syntactic heads."""
    relations: np.ndarray
    sentences: np.ndarray
    """Indices of their sentences."""
    positions: np.ndarray
    """In the sentence, from 0."""
    offsets: np.ndarray
    """From the word to its head, in words."""


def items_of(sentences: Sequence[Sentence]) -> Items:
    """The items of sentences; the root is not one."""
    rows = [
        (sentence.words[i], sentence.words[head - 1], sentence.relations[i], number, i, head - 1 - i)
        for number, sentence in enumerate(sentences) for i, head in enumerate(sentence.heads) if head
    ]  # fmt: skip
    kinds = (str, str, str, int, int, int)
    columns = zip(*rows, strict=True) if rows else [()] * len(kinds)
    return Items(*(np.array(column, kind) for column, kind in zip(columns, kinds, strict=True)))


@dataclass(frozen=True)
class Attended:
    """What a model's attention heads find in the sentences of a split."""

    items: Items
    right: np.ndarray
    """(directions * heads, items), all heads for the first of `DIRECTIONS` first: whether an item's syntactic head is
    found. False where its sentence is too long."""
    known: np.ndarray
    """(items,): whether its sentence fits into the model."""
    heads: list[dict[str, float]]
    """The mean attention of each attention head, layer by layer."""


def attend(model: LanguageModel, tokens: AnyTokenizer, sentences: list[Sentence], name: str) -> Attended:
    """Raises SesameError where no sentence of two words fits, and as `maps.token_attention`."""
    encoded, items = treebanks.encode(model, tokens, sentences), items_of(sentences)
    known = encoded.fits[items.sentences]
    if not known.any():
        raise SesameError(f"{name} can read none of {len(sentences)} sentences: each is too long, or a single word")
    means, numbers, most = Means(), [], {}
    for i, layers in maps.sentence_attention(model, encoded, name):
        numbers = numbers or [(layer, head) for layer, heads in enumerate(layers, 1) for head in range(1, len(heads) + 1)]
        member, weights = maps.membership(encoded.words[i]), torch.cat(layers)  # heads of all layers
        between = maps.word_attention(weights, member)
        most[i] = torch.cat([maps.most_attended(between), maps.most_attended(between.transpose(1, 2))]).numpy()
        means.add(weights, between, member, specials(encoded.ids[i], tokens), sentences[i])
    right = np.zeros((len(DIRECTIONS) * len(numbers), len(known)), bool)
    for item in np.flatnonzero(known):
        position = items.positions[item]
        right[:, item] = most[items.sentences[item]][:, position] == position + items.offsets[item]
    heads = [{"layer": layer, "head": head} | mean for (layer, head), mean in zip(numbers, means.by_head(), strict=True)]
    return Attended(items, right, known, heads)


def specials(ids: Sequence[int], tokens: AnyTokenizer) -> Tensor:
    """Whether each id is a special token around the text, (ids,)."""
    positions = torch.arange(len(ids))
    return (positions < len(tokens.prefix)) | (positions >= len(ids) - len(tokens.suffix))


class Means:
    """Where the attention of words goes: for each attention head the means over all added sentences."""

    def __init__(self):
        self.sums: dict[str, Tensor] = {}
        self.counts: Counter[str] = Counter()

    def add(self, weights: Tensor, between: Tensor, member: Tensor, special: Tensor, sentence: Sentence) -> None:
        """Add a sentence: attention weights between tokens (heads, tokens, tokens) and between words (heads, words, words),
        membership of tokens in words (tokens, words), and which tokens are special (tokens,)."""
        punctuation = torch.tensor([tag == PUNCTUATION for tag in sentence.tags])
        to_specials = weights[:, :, special].sum(2, keepdim=True)
        entropy = torch.special.entr(weights).sum(2, keepdim=True)  # in nats, over tokens
        shares = {
            "itself": between.diagonal(0, 1, 2),
            "previous": between.diagonal(-1, 1, 2),
            "next": between.diagonal(1, 1, 2),
            "specials": maps.mean_over_tokens(to_specials, member)[:, :, 0],
            "punctuation": between[:, :, punctuation].sum(2),
            "entropy": maps.mean_over_tokens(entropy, member)[:, :, 0],
        }
        for name, values in shares.items():  # (heads, words); the first word has no previous one, the last no next one
            self.sums[name] = self.sums.get(name, 0) + values.double().sum(1)
            self.counts[name] += values.shape[1]

    def by_head(self) -> list[dict[str, float]]:
        means = {name: (total / self.counts[name]).tolist() for name, total in self.sums.items()}
        return [dict(zip(means, values, strict=True)) for values in zip(*means.values(), strict=True)]


def select(right: np.ndarray, relations: np.ndarray) -> dict[str, int]:
    """For each relation the candidate that is right most often, the first of equal ones. right (candidates, items),
    relations (items,)."""
    return {str(relation): int(right[:, relations == relation].sum(1).argmax()) for relation in np.unique(relations)}


def select_offsets(items: Items, known: np.ndarray) -> dict[str, int]:
    """For each relation the most frequent offset from a word to its head: the baseline of the paper."""
    candidates = np.unique(items.offsets[known])
    best = select(items.offsets[known] == candidates[:, None], items.relations[known])
    return {relation: int(candidates[index]) for relation, index in best.items()}


def correct(selected: Mapping[str, int], right: np.ndarray, relations: np.ndarray) -> np.ndarray:
    """(items,): whether the candidate selected for an item's relation is right; False where none was selected."""
    named = enumerate(relations.tolist())
    return np.array([relation in selected and right[selected[relation], i] for i, relation in named], bool)
