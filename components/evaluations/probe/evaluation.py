"""Probes as an evaluation: the words of a treebank, and what can be read of them from each layer of a model."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from components.core import storage
from components.core.errors import SesameError
from components.evaluations import enough, treebanks
from components.evaluations.contract import Answers
from components.evaluations.probe import linear, structural
from components.evaluations.probe.config import Probe
from components.evaluations.reading import AnyTokenizer
from components.evaluations.treebanks import Sentence
from components.models.contract import LanguageModel

DEEPEST = 6
"""Depths from here on are one class."""
DEV = 0.1
"""Of the sentences for training, what chooses the layer."""
SPLITS = ("train", "test")


def prepare(folder: Path, block: Probe) -> dict:
    """Write the sentences of both splits; how many, and how many words. Raises SesameError where a split has none."""
    figures = treebanks.prepare(folder, block)
    storage.write_json(folder / "card.json", {"label": block.label, "seed": block.seed})
    return figures


def ask(folder: Path, model: LanguageModel, tokens: AnyTokenizer, name: str) -> Answers:
    """Raises SesameError where too few sentences fit into the model."""
    with storage.reading(folder / "card.json"):
        card = {key: storage.read_json(folder / "card.json")[key] for key in ("label", "seed")}
    splits = {}
    for split in SPLITS:
        sentences = treebanks.read_written(folder / f"{split}.jsonl")
        vectors = treebanks.word_vectors(model, tokens, sentences)
        if all(own.isnan().any() for own in vectors):
            raise SesameError(
                f"{name} can read none of the {len(sentences)} sentences for {split}: each has a word without an id"
            )
        splits[split] = sentences, vectors
    answers = (_tree if card["label"] == "tree" else _classified)(splits["train"], splits["test"], card)
    return enough.answered(answers, name)


Split = tuple[list[Sentence], list[Tensor]]


class Examples(NamedTuple):
    """Words with a label."""

    words: list[str]
    labels: list[str]
    sentences: list[int]
    """The number of each word's sentence."""
    places: list[tuple[int, int | None]]
    """Of each word its place in the sentence, and that of its head where the label is of both."""


def labelled(sentences: Sequence[Sentence], label: str) -> Examples:
    """The words of sentences with what a probe reads of them."""
    made = Examples([], [], [], [])
    for number, sentence in enumerate(sentences):
        depths = [str(min(depth, DEEPEST)) for depth in sentence.depths]
        labels = {"part_of_speech": sentence.tags, "relation": sentence.relations, "depth": depths}[label]
        for place, word in enumerate(sentence.words):
            if label == "relation" and not sentence.heads[place]:
                continue
            made.words.append(word.lower())
            made.labels.append(labels[place])
            made.sentences.append(number)
            made.places.append((place, sentence.heads[place] - 1 if label == "relation" else None))
    return made


def _inputs(own: Examples, vectors: Sequence[Tensor], layer: int) -> Tensor:
    """(words, width) of a layer, or (words, 2 * width) with the head's beside."""
    rows = []
    for number, (place, head) in zip(own.sentences, own.places, strict=True):
        states = vectors[number][layer]
        rows.append(states[place] if head is None else torch.cat([states[place], states[head]]))
    return torch.stack(rows)


def _classified(train: Split, test: Split, card: dict) -> Answers:
    """Linear classifiers of each layer; the scores on test are those of the layer that is best on a tenth of train."""
    learnt, asked = labelled(train[0], card["label"]), labelled(test[0], card["label"])
    names = sorted(set(learnt.labels))
    numbers = {label: i for i, label in enumerate(names)}
    _learnable(card["label"], *(len(own.words) for own in (learnt, learnt, asked)))
    known, read = (
        _inputs(own, split[1], 0).isfinite().all(1).numpy() for own, split in ((learnt, train), (asked, test))
    )
    of_dev = np.array(learnt.sentences) >= (1 - DEV) * len(train[0])
    fitted, dev = known & ~of_dev, known & of_dev
    y = np.array([numbers[label] for label in learnt.labels])
    _learnable(card["label"], *(int(own.sum()) for own in (fitted, dev, read)), len(np.unique(y[fitted])))
    # a label that train does not have is never right
    wanted = np.array([numbers.get(label, -1) for label in asked.labels])
    control = linear.control_labels([*learnt.words, *asked.words], y, card["seed"])
    y_control, wanted_control = control[: len(y)], control[len(y) :]
    layers, best = [], None
    for layer in range(len(train[1][0])):
        inputs = _inputs(learnt, train[1], layer)
        x, x_dev, x_test = inputs[fitted], inputs[dev], _inputs(asked, test[1], layer)[read]
        probe, other = (linear.fit(x, torch.from_numpy(own[fitted]), len(names)) for own in (y, y_control))
        right, right_control = (
            own.logits(x_test).argmax(1).numpy() == labels[read]
            for own, labels in ((probe, wanted), (other, wanted_control))
        )
        score = float(right.mean())
        layers.append({
            "score": score, "control": float(right_control.mean()), "selectivity": score - float(right_control.mean()),
            "compression": linear.compression(x, torch.from_numpy(y[fitted]), len(names)),
        })  # fmt: skip
        on_dev = float((probe.logits(x_dev).argmax(1).numpy() == y[dev]).mean())
        if best is None or on_dev > best[0]:
            best = on_dev, layer, right
    values = np.full(len(asked.words), np.nan)
    values[read] = best[2]
    references = _by_heart(learnt, asked, fitted, read)
    figures = {"layer": best[1], "labels": len(names), "train_words": int(fitted.sum()), "references": references}
    items = pd.DataFrame({"word": asked.words, "label": asked.labels})
    return Answers(
        f"linear probe, layer {best[1]}", values, np.array(asked.labels), np.ones(len(values)), items, figures,
        clusters=np.array(asked.sentences), layers=layers,
    )  # fmt: skip


def _learnable(label: str, fitted: int, dev: int, judged: int, labels: int | None = None) -> None:
    """Raises SesameError where there is nothing to tell apart, to learn from, to choose the layer by, or to judge."""
    if not (fitted and dev and judged) or labels in (0, 1):
        of = "" if labels is None else f" of {labels} labels"
        raise SesameError(
            f"a probe of {label} has {fitted} words{of} to learn from, {dev} in a tenth of train to choose the layer by, "
            f"{judged} to judge, and needs some of each{of and ', and two labels'}; give more sentences, no longer than the model reads"
        )


def _by_heart(learnt: Examples, asked: Examples, fitted: np.ndarray, read: np.ndarray) -> dict[str, float]:
    """What needs no model: the most frequent label, and each word's most frequent one. `fitted` and `read` say which
    words count."""
    counts: dict[str, Counter[str]] = {}
    for i in np.flatnonzero(fitted):
        counts.setdefault(learnt.words[i], Counter())[learnt.labels[i]] += 1
    most = sum(counts.values(), Counter()).most_common(1)[0][0]
    by_word = {word: labels.most_common(1)[0][0] for word, labels in counts.items()}
    pairs = [(asked.labels[i], by_word.get(asked.words[i], most)) for i in np.flatnonzero(read)]
    return {
        "most_frequent": float(np.mean([label == most for label, _ in pairs])),
        "by_word": float(np.mean([label == guess for label, guess in pairs])),
    }


def _tree(train: Split, test: Split, card: dict) -> Answers:
    """The structural probe of each layer: the share of words whose edge to their head is found (UUAS)."""
    sentences, vectors = zip(
        *[(own, vector) for own, vector in zip(*train, strict=True) if vector.isfinite().all()], strict=True
    )
    first_dev = len(sentences) - max(1, int(DEV * len(sentences)))
    edges = [int(np.isfinite(structural.right_edges(_places(one), one)).sum()) for one in sentences]
    read = [one for one, vector in zip(*test, strict=True) if vector.isfinite().all()]
    of_test = sum(int(np.isfinite(structural.right_edges(_places(one), one)).sum()) for one in read)
    _learnable("tree", sum(edges[:first_dev]), sum(edges[first_dev:]), of_test)
    layers, best = [], None
    for layer in range(len(vectors[0])):
        own = [vector[layer] for vector in vectors]
        projection = structural.fit(own[:first_dev], sentences[:first_dev], card["seed"])
        values = _edges(projection, layer, *test)
        layers.append({"score": float(np.nanmean(values))})
        on_dev = float(np.nanmean(_edges(projection, layer, sentences[first_dev:], vectors[first_dev:])))
        if best is None or on_dev > best[0]:
            best = on_dev, layer, values
    own = [
        (number, word, relation)
        for number, one in enumerate(test[0])
        for word, relation in zip(one.words, one.relations, strict=True)
    ]
    clusters, words, relations = (np.array(part) for part in zip(*own, strict=True))
    beside = np.concatenate([structural.right_edges(_places(one), one) for one in test[0]])
    asked = np.isfinite(beside)  # the root and punctuation are no items
    figures = {"layer": best[1], "train_sentences": first_dev, "references": {"word_before": float(np.nanmean(beside))}}
    return Answers(
        f"structural probe, layer {best[1]}", best[2][asked], relations[asked], np.ones(int(asked.sum())),
        pd.DataFrame({"word": words[asked], "label": relations[asked]}), figures, clusters=clusters[asked], layers=layers,
    )  # fmt: skip


def _edges(
    projection: structural.Projection, layer: int, sentences: Sequence[Sentence], vectors: Sequence[Tensor]
) -> np.ndarray:
    """Of each word of all sentences whether the edge to its head is found; NaN where that can't be said, or a word has
    no vector."""
    found = []
    for sentence, vector in zip(sentences, vectors, strict=True):
        if vector.isnan().any():
            found.append(np.full(len(sentence.words), np.nan))
        else:
            found.append(structural.right_edges(projection.squared_distances(vector[layer]).numpy(), sentence))
    return np.concatenate(found)


def _places(sentence: Sentence) -> np.ndarray:
    """(words, words): how far apart words are in the text, so that the smallest tree is a chain."""
    places = np.arange(len(sentence.words))
    return np.abs(places[:, None] - places).astype(float)
