"""Probes as an evaluation: what can be predicted of the words of a treebank from each layer of a model."""

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
from components.evaluations import treebanks
from components.evaluations.contract import Answers, check_answers
from components.evaluations.inference import AnyTokenizer
from components.evaluations.probe import linear, structural
from components.evaluations.probe.config import Probe
from components.evaluations.treebanks import Sentence
from components.models.contract import LanguageModel
from components.stages.outputs import read_json, reading

MAX_DEPTH = 6
"""Greater depths are in the same class."""
DEV_SHARE = 0.1
"""Of the training sentences, to select the layer."""


def prepare(folder: Path, block: Probe) -> dict:
    """Write the sentences of both splits; returns their numbers. Raises SesameError where a split has none."""
    figures = treebanks.prepare(folder, block)
    storage.write_json(folder / "card.json", {"label": block.label, "seed": block.seed})
    return figures


def evaluate(folder: Path, model: LanguageModel, tokens: AnyTokenizer, name: str) -> Answers:
    """Raises SesameError where the model can read too few sentences."""
    with reading(folder / "card.json"):
        card = {key: read_json(folder / "card.json")[key] for key in ("label", "seed")}
    splits = {}
    for split in ("train", "test"):
        sentences = treebanks.read_written(folder / f"{split}.jsonl")
        vectors = treebanks.word_vectors(model, tokens, sentences)
        if all(sentence.isnan().any() for sentence in vectors):
            raise SesameError(f"{name} can read none of the {len(sentences)} sentences for {split}: each has a word without an id")
        splits[split] = sentences, vectors
    answers = (_tree if card["label"] == "tree" else _classify)(splits["train"], splits["test"], card)
    return check_answers(answers, name)


Split = tuple[list[Sentence], list[Tensor]]


class Examples(NamedTuple):
    """Words with a label."""

    words: list[str]
    labels: list[str]
    sentences: list[int]
    """The index of each word's sentence."""
    positions: list[tuple[int, int | None]]
    """The position of each word in its sentence, and of its head where the label is of both."""


def labelled(sentences: Sequence[Sentence], label: str) -> Examples:
    """The words of sentences with the labels that a probe predicts."""
    examples = Examples([], [], [], [])
    for number, sentence in enumerate(sentences):
        depths = [str(min(depth, MAX_DEPTH)) for depth in sentence.depths]
        labels = {"part_of_speech": sentence.tags, "relation": sentence.relations, "depth": depths}[label]
        for position, word in enumerate(sentence.words):
            if label == "relation" and not sentence.heads[position]:
                continue
            examples.words.append(word.lower())
            examples.labels.append(labels[position])
            examples.sentences.append(number)
            examples.positions.append((position, sentence.heads[position] - 1 if label == "relation" else None))
    return examples


def _inputs(examples: Examples, vectors: Sequence[Tensor], layer: int) -> Tensor:
    """The vectors of a layer, (words, width), or (words, 2 * width) with those of the heads."""
    rows = []
    for number, (position, head) in zip(examples.sentences, examples.positions, strict=True):
        states = vectors[number][layer]
        rows.append(states[position] if head is None else torch.cat([states[position], states[head]]))
    return torch.stack(rows)


def _classify(train: Split, test: Split, card: dict) -> Answers:
    """Train a linear classifier on each layer; the scores on test are those of the layer that is best on a tenth of train."""
    learnt, tested = labelled(train[0], card["label"]), labelled(test[0], card["label"])
    names = sorted(set(learnt.labels))
    numbers = {label: i for i, label in enumerate(names)}
    _check_sizes(card["label"], len(learnt.words), len(learnt.words), len(tested.words))
    known, read = (_inputs(examples, vectors, 0).isfinite().all(1).numpy() for examples, vectors in ((learnt, train[1]), (tested, test[1])))
    of_dev = np.array(learnt.sentences) >= (1 - DEV_SHARE) * len(train[0])
    fitted, dev = known & ~of_dev, known & of_dev
    y = np.array([numbers[label] for label in learnt.labels])
    _check_sizes(card["label"], int(fitted.sum()), int(dev.sum()), int(read.sum()), len(np.unique(y[fitted])))
    # labels that train does not have are never predicted
    y_test = np.array([numbers.get(label, -1) for label in tested.labels])
    control = linear.control_labels([*learnt.words, *tested.words], y, card["seed"])
    control_train, control_test = control[: len(y)], control[len(y) :]
    layers, best = [], None
    for layer in range(len(train[1][0])):
        inputs = _inputs(learnt, train[1], layer)
        x, x_dev, x_test = inputs[fitted], inputs[dev], _inputs(tested, test[1], layer)[read]
        probe, control_probe = (linear.fit(x, torch.from_numpy(labels[fitted]), len(names)) for labels in (y, control_train))
        right, control_right = (
            classifier.logits(x_test).argmax(1).numpy() == labels[read]
            for classifier, labels in ((probe, y_test), (control_probe, control_test))
        )
        score, control_score = float(right.mean()), float(control_right.mean())
        layers.append({
            "score": score, "control": control_score, "selectivity": score - control_score,
            "compression": linear.compression(x, torch.from_numpy(y[fitted]), len(names)),
        })  # fmt: skip
        on_dev = float((probe.logits(x_dev).argmax(1).numpy() == y[dev]).mean())
        if best is None or on_dev > best[0]:
            best = on_dev, layer, right
    values = np.full(len(tested.words), np.nan)
    values[read] = best[2]
    references = _references(learnt, tested, fitted, read)
    figures = {
        "labels": len(names), "train_words": int(fitted.sum()), "references": references,
        "compression_by_frequency": linear.compression_by_frequency(torch.from_numpy(y[fitted]), len(names)),
    }  # fmt: skip
    items = pd.DataFrame({"word": tested.words, "label": tested.labels})
    return Answers(
        "linear probe", values, np.array(tested.labels), np.ones(len(values)), items, figures,
        clusters=np.array(tested.sentences), layers=layers, layer=best[1],
    )  # fmt: skip


def _check_sizes(label: str, fitted: int, dev: int, tested: int, labels: int | None = None) -> None:
    """Raises SesameError where there are no words to train on, to select the layer, or to test, or fewer than two labels."""
    if not (fitted and dev and tested) or labels in (0, 1):
        of = "" if labels is None else f" of {labels} labels"
        raise SesameError(
            f"a probe of {label} has {fitted} words{of} to train on, {dev} in a tenth of train to select the layer, "
            f"{tested} to test, and needs some of each{of and ', and two labels'}; give more sentences, no longer than the model reads"
        )


def _references(learnt: Examples, tested: Examples, fitted: np.ndarray, read: np.ndarray) -> dict[str, float]:
    """Baselines without a model: the most frequent label, and the most frequent one of each word. `fitted` and `read` select
    the words that count."""
    counts: dict[str, Counter[str]] = {}
    for i in np.flatnonzero(fitted):
        counts.setdefault(learnt.words[i], Counter())[learnt.labels[i]] += 1
    most = sum(counts.values(), Counter()).most_common(1)[0][0]
    by_word = {word: labels.most_common(1)[0][0] for word, labels in counts.items()}
    pairs = [(tested.labels[i], by_word.get(tested.words[i], most)) for i in np.flatnonzero(read)]
    return {
        "most_frequent": float(np.mean([label == most for label, _ in pairs])),
        "by_word": float(np.mean([label == guess for label, guess in pairs])),
    }


def _tree(train: Split, test: Split, card: dict) -> Answers:
    """Train a structural probe on each layer; the score is the share of words whose edge to their head is in the tree (UUAS)."""
    sentences, vectors = zip(*[pair for pair in zip(*train, strict=True) if pair[1].isfinite().all()], strict=True)
    first_dev = len(sentences) - max(1, int(DEV_SHARE * len(sentences)))
    edges = [int(np.isfinite(_chain_edges(sentence)).sum()) for sentence in sentences]
    read = [sentence for sentence, vector in zip(*test, strict=True) if vector.isfinite().all()]
    test_edges = sum(int(np.isfinite(_chain_edges(sentence)).sum()) for sentence in read)
    _check_sizes("tree", sum(edges[:first_dev]), sum(edges[first_dev:]), test_edges)
    layers, best = [], None
    for layer in range(len(vectors[0])):
        inputs = [vector[layer] for vector in vectors[:first_dev]]
        projection = structural.fit(inputs, sentences[:first_dev], card["seed"])
        values = _edges(projection, layer, *test)
        layers.append({"score": float(np.nanmean(values))})
        on_dev = float(np.nanmean(_edges(projection, layer, sentences[first_dev:], vectors[first_dev:])))
        if best is None or on_dev > best[0]:
            best = on_dev, layer, values
    words = [
        (number, word, relation)
        for number, sentence in enumerate(test[0])
        for word, relation in zip(sentence.words, sentence.relations, strict=True)
    ]
    clusters, words, relations = (np.array(column) for column in zip(*words, strict=True))
    neighbours = np.concatenate([_chain_edges(sentence) for sentence in test[0]])
    items = np.isfinite(neighbours)  # without the root and punctuation
    figures = {"train_sentences": first_dev, "references": {"word_before": float(np.nanmean(neighbours))}}
    return Answers(
        "structural probe", best[2][items], relations[items], np.ones(int(items.sum())),
        pd.DataFrame({"word": words[items], "label": relations[items]}), figures,
        clusters=clusters[items], layers=layers, layer=best[1],
    )  # fmt: skip


def _edges(projection: structural.Projection, layer: int, sentences: Sequence[Sentence], vectors: Sequence[Tensor]) -> np.ndarray:
    """For each word of all sentences whether the edge to its head is in the tree; NaN where that is undefined, or a word
    has no vector."""
    values = []
    for sentence, vector in zip(sentences, vectors, strict=True):
        if vector.isnan().any():
            values.append(np.full(len(sentence.words), np.nan))
        else:
            values.append(structural.right_edges(projection.squared_distances(vector[layer]).numpy(), sentence))
    return np.concatenate(values)


def _chain_edges(sentence: Sentence) -> np.ndarray:
    """The baseline of neighbours: `right_edges` for distances in the text, whose smallest tree is a chain."""
    positions = np.arange(len(sentence.words))
    return structural.right_edges(np.abs(positions[:, None] - positions).astype(float), sentence)
