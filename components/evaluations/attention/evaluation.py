"""What heads attend to, as an evaluation: which of them finds the word that another one depends on.

Clark et al. 2019, "What does BERT look at?": section 4, and of section 3 where a head's attention goes on the whole.
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
from components.evaluations import enough, treebanks
from components.evaluations.attention import maps
from components.evaluations.attention.config import Attention
from components.evaluations.contract import Answers
from components.evaluations.reading import AnyTokenizer
from components.evaluations.treebanks import PUNCTUATION, Sentence
from components.models.contract import LanguageModel

DIRECTIONS = ("dependent_to_head", "head_to_dependent")
"""Who attends: a word finds its head where it attends to it most, or where of all words the head attends to it most."""
FEWEST = 50
"""Words of test that a relation has whose best head is shown."""


def prepare(folder: Path, block: Attention) -> dict:
    """Write the sentences of both splits; how many, and how many words. Raises SesameError where a split has none."""
    return treebanks.prepare(folder, block)


def ask(folder: Path, model: LanguageModel, tokens: AnyTokenizer, name: str) -> Answers:
    """Raises SesameError for a model without attention, and where too few sentences fit into it."""
    splits = [treebanks.read_written(folder / f"{split}.jsonl") for split in ("train", "test")]
    train, test = (looked_at(model, tokens, sentences, name) for sentences in splits)
    items, known = test.items, test.known
    # a random twin chooses heads of its own, too
    by_head = chosen(train.right[:, train.known], train.items.relations[train.known])
    by_offset = chosen_offsets(train.items, train.known)
    right = judged(by_head, test.right, items.relations)
    by_place = np.array([by_offset.get(relation) for relation in items.relations.tolist()]) == items.away
    figures = {
        "references": {"offset": float(by_place[known].mean())},
        "heads": test.heads,
        "best": best(by_head, by_offset, test, right, by_place),
    }
    kept = {"word": items.words, "head": items.heads, "label": items.relations, "offset": by_place.astype(int)}
    answers = Answers(
        "best head for each relation", np.where(known, right, np.nan), items.relations, np.ones(len(known)),
        pd.DataFrame(kept), figures, clusters=items.sentences,
    )  # fmt: skip
    return enough.answered(answers, name)


def best(
    by_head: Mapping[str, int], by_offset: Mapping[str, int], test: "Looked", right: np.ndarray, by_place: np.ndarray
) -> dict[str, dict[str, Any]]:
    """Of each relation with at least `FEWEST` words of test: which head was chosen, which offset (in words, to the
    head), and how often each is right there. right, by_place (items,): whether they are."""
    shown = {}
    for relation, candidate in by_head.items():
        own = test.known & (test.items.relations == relation)
        if own.sum() < FEWEST:
            continue
        direction, place = divmod(candidate, len(test.heads))
        shown[relation] = {
            "layer": test.heads[place]["layer"],
            "head": test.heads[place]["head"],
            "direction": DIRECTIONS[direction],
            "accuracy": float(right[own].mean()),
            "offset": by_offset[relation],
            "offset_accuracy": float(by_place[own].mean()),
            "words": int(own.sum()),
        }
    return shown


class Items(NamedTuple):
    """All words of sentences that depend on another one, each (items,)."""

    words: np.ndarray
    heads: np.ndarray
    """The words that they depend on."""
    relations: np.ndarray
    sentences: np.ndarray
    """Numbers."""
    places: np.ndarray
    """In the sentence, from 0."""
    away: np.ndarray
    """How many words after it its head stands."""


def items_of(sentences: Sequence[Sentence]) -> Items:
    """The root is none: it depends on no word."""
    rows = [
        (sentence.words[place], sentence.words[head - 1], sentence.relations[place], number, place, head - 1 - place)
        for number, sentence in enumerate(sentences) for place, head in enumerate(sentence.heads) if head
    ]  # fmt: skip
    kinds = (str, str, str, int, int, int)
    columns = zip(*rows, strict=True) if rows else [()] * len(kinds)
    return Items(*(np.array(column, kind) for column, kind in zip(columns, kinds, strict=True)))


@dataclass(frozen=True)
class Looked:
    """What a model's heads do with the sentences of a split."""

    items: Items
    right: np.ndarray
    """(directions * heads, items), of `DIRECTIONS` the first one's heads first: whether an item's head is found. False
    where its sentence is too long."""
    known: np.ndarray
    """(items,): whether its sentence fits into the model."""
    heads: list[dict[str, float]]
    """Of each head, layer by layer, its mean attention."""


def looked_at(model: LanguageModel, tokens: AnyTokenizer, sentences: list[Sentence], name: str) -> Looked:
    """Raises SesameError where no sentence of two words fits, and as `maps.of_tokens`."""
    rows, items = treebanks.rows(model, tokens, sentences), items_of(sentences)
    known = rows.fits[items.sentences]
    if not known.any():
        raise SesameError(f"{name} can read none of {len(sentences)} sentences: each is too long, or a single word")
    means, numbers, found = Means(), [], {}
    for i, layers in maps.of_sentences(model, rows, name):
        numbers = numbers or [(layer, head) for layer, own in enumerate(layers, 1) for head in range(1, len(own) + 1)]
        member, weights = maps.membership(rows.words[i]), torch.cat(layers)  # heads of all layers
        between = maps.of_words(weights, member)
        found[i] = torch.cat([maps.most_attended(between), maps.most_attended(between.transpose(1, 2))]).numpy()
        means.add(weights, between, member, specials(rows.ids[i], tokens), sentences[i])
    right = np.zeros((len(DIRECTIONS) * len(numbers), len(known)), bool)
    for item in np.flatnonzero(known):
        place = items.places[item]
        right[:, item] = found[items.sentences[item]][:, place] == place + items.away[item]
    heads = [{"layer": layer, "head": head} | own for (layer, head), own in zip(numbers, means.each(), strict=True)]
    return Looked(items, right, known, heads)


def specials(ids: Sequence[int], tokens: AnyTokenizer) -> Tensor:
    """Of each id whether it stands around the text, (ids,)."""
    places = torch.arange(len(ids))
    return (places < len(tokens.prefix)) | (places >= len(ids) - len(tokens.suffix))


class Means:
    """Where the attention of words goes, of each head the mean over all that are added."""

    def __init__(self):
        self.sums: dict[str, Tensor] = {}
        self.counts: Counter[str] = Counter()

    def add(self, weights: Tensor, between: Tensor, member: Tensor, special: Tensor, sentence: Sentence) -> None:
        """A sentence's weights between tokens (heads, tokens, tokens) and between words (heads, words, words); which
        tokens are of which word (tokens, words), and which are special (tokens,)."""
        punctuation = torch.tensor([tag == PUNCTUATION for tag in sentence.tags])
        to_specials = weights[:, :, special].sum(2, keepdim=True)
        entropy = torch.special.entr(weights).sum(2, keepdim=True)  # in nats, over tokens
        shares = {
            "itself": between.diagonal(0, 1, 2),
            "previous": between.diagonal(-1, 1, 2),
            "next": between.diagonal(1, 1, 2),
            "specials": maps.from_words(to_specials, member)[:, :, 0],
            "punctuation": between[:, :, punctuation].sum(2),
            "entropy": maps.from_words(entropy, member)[:, :, 0],
        }
        for name, own in shares.items():  # (heads, words); the first word has none before it, the last none after it
            self.sums[name] = self.sums.get(name, 0) + own.double().sum(1)
            self.counts[name] += own.shape[1]

    def each(self) -> list[dict[str, float]]:
        """Of each head."""
        means = {name: (own / self.counts[name]).tolist() for name, own in self.sums.items()}
        return [dict(zip(means, own, strict=True)) for own in zip(*means.values(), strict=True)]


def chosen(right: np.ndarray, relations: np.ndarray) -> dict[str, int]:
    """Of each relation the candidate that is right most often; of equal ones the first. right (candidates, items),
    relations (items,)."""
    return {str(relation): int(right[:, relations == relation].sum(1).argmax()) for relation in np.unique(relations)}


def chosen_offsets(items: Items, known: np.ndarray) -> dict[str, int]:
    """Of each relation how far from a word its head stands most often: the baseline of the paper."""
    candidates = np.unique(items.away[known])
    best = chosen(items.away[known] == candidates[:, None], items.relations[known])
    return {relation: int(candidates[place]) for relation, place in best.items()}


def judged(choice: Mapping[str, int], right: np.ndarray, relations: np.ndarray) -> np.ndarray:
    """(items,): whether the candidate of an item's relation is right; never where nothing was chosen for it."""
    named = enumerate(relations.tolist())
    return np.array([relation in choice and right[choice[relation], i] for i, relation in named], bool)
