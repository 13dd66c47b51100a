"""Sentence probes as an evaluation: a task's labels predicted from each layer of a frozen model."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from scipy import sparse
from sklearn.linear_model import LogisticRegression, Ridge
from threadpoolctl import threadpool_limits
from torch import Tensor

from components.core import storage
from components.core.errors import SesameError
from components.core.keyed import generator
from components.evaluations.contract import Answers, check_answers
from components.evaluations.inference import AnyTokenizer, by_length, device_of, inference, padded
from components.evaluations.probe.standard import Standard
from components.evaluations.sentence_probe.config import SentenceProbe
from components.models.common.heads import pair_features
from components.models.contract import LanguageModel
from components.params.tasks import Task
from components.stages.outputs import read_json, reading
from components.tasks import Example, read
from components.tasks.__main__ import read_splits
from components.tasks.bags import bags_of_words

DEV_SHARE = 0.2
"""Of the training examples, to select the layer and the penalty."""
PENALTIES = (1.0, 10.0, 100.0, 1e3, 1e4, 1e5)
"""Of the squared weights: 1/C of scikit-learn's logistic regression, alpha of its ridge regression."""
TOKENS = 4096
"""In a batch at most, with padding."""


def prepare(folder: Path, block: SentenceProbe, task: Task, seed: int) -> dict:
    """Write the drawn examples of both splits and the scores of baselines without a model.

    Returns the numbers of examples. Raises SesameError where there are fewer than 10 training examples, or all have
    one label.
    """
    splits, empty = read_splits(task, seed, Counter()), 0
    drawn = {}
    for split, count in (("train", block.train_examples), (block.split, block.test_examples)):
        complete = [row for row in splits[split] if "" not in (row.text_a, row.text_b)]
        empty += len(splits[split]) - len(complete)
        drawn[split] = [complete[i] for i in generator(0).permutation(len(complete))[:count].tolist()]
    train, test = drawn["train"], drawn[block.split]
    if len(train) < 10 or (task.kind == "classification" and len({row.label for row in train[_dev_size(train) :]}) < 2):
        raise SesameError(
            f"task {block.task}: {len(train)} training examples, or all of one label; "
            "a probe needs ten or more, of two labels"
        )
    for name, rows in (("train", train), ("test", test)):
        (folder / f"{name}.jsonl").write_text("".join(row.line() for row in rows), encoding="utf-8")
    references = _references(train, test, task.kind)
    storage.write_json(
        folder / "card.json", {"task": block.task, "kind": task.kind, "split": block.split, "references": references}
    )
    left_out = f"; {empty:,} with an empty text left out" if empty else ""
    print(f"{block.task}: {len(train):,} examples of train and {len(test):,} of {block.split}{left_out}")
    return {"items": len(test), "train_items": len(train), "left_out_empty": empty}


def evaluate(folder: Path, model: LanguageModel, tokens: AnyTokenizer, name: str) -> Answers:
    """Train a linear model on each layer; the score on test is that of the layer that is best on a fifth of train.

    Raises SesameError where the model can read too few texts.
    """
    with reading(folder / "card.json"):
        card = {key: read_json(folder / "card.json")[key] for key in ("kind", "references")}
    splits = {split: read(folder, split) for split in ("train", "test")}
    vectors = {split: features(model, tokens, rows) for split, rows in splits.items()}
    known = {split: rows.isfinite().all(2).all(1).numpy() for split, rows in vectors.items()}
    train = [row for row, fits in zip(splits["train"], known["train"], strict=True) if fits]
    if len(train) < 10 or not known["test"].any():
        raise SesameError(
            f"{name} can read {len(train)} of {len(splits['train'])} texts to train a probe on and "
            f"{known['test'].sum()} of {len(splits['test'])} to test it; give a task whose texts its tokenizer knows"
        )
    inputs, tested = vectors["train"][known["train"]], vectors["test"][known["test"]]
    labels, truth = (np.array([row.label for row in rows]) for rows in (train, splits["test"]))
    dev = _dev_size(train)
    layers, best = [], None
    for layer in range(inputs.shape[1]):
        standard = Standard.of(inputs[dev:, layer])
        x, x_test = standard(inputs[:, layer]).numpy(), standard(tested[:, layer]).numpy()
        fits = [_fitted(card["kind"], penalty, x[dev:], labels[dev:]) for penalty in PENALTIES]
        scores = [_values(card["kind"], fit.predict(x[:dev]), labels[:dev]).mean() for fit in fits]
        chosen = int(np.argmax(scores))
        values = _values(card["kind"], fits[chosen].predict(x_test), truth[known["test"]])
        layers.append({"score": float(values.mean())})
        if best is None or scores[chosen] > best.on_dev:
            best = Best(scores[chosen], layer, values)
    values = np.full(len(truth), np.nan)
    values[known["test"]] = best.values
    groups = truth if card["kind"] == "classification" else np.full(len(truth), "scores")
    pairs = [row.text_a for row in splits["test"]]  # SNLI has three pairs with one premise
    return check_answers(
        Answers(
            "sentence probe", values, groups, np.ones(len(values)),
            pd.DataFrame({"id": [row.id for row in splits["test"]], "label": truth}),
            {"train_examples": len(train) - dev, "references": card["references"]},
            measure="accuracy" if card["kind"] == "classification" else "variance explained",
            clusters=np.unique(pairs, return_inverse=True)[1], layers=layers, layer=best.layer,
        ),
        name,
    )  # fmt: skip


class Best(NamedTuple):
    on_dev: float
    layer: int
    values: np.ndarray
    """(texts that were read,)"""


def features(model: LanguageModel, tokens: AnyTokenizer, rows: Sequence[Example]) -> Tensor:
    """The inputs of the linear models: (examples, layers + 1, width), or (examples, layers + 1, 4 * width) for pairs.
    NaN where a text has no tokens."""
    texts = [[row.text_a for row in rows]]
    if rows[0].text_b is not None:
        texts.append([row.text_b for row in rows])
    unique = sorted({text for column in texts for text in column})
    vectors = dict(zip(unique, mean_vectors(model, tokens, unique), strict=True))
    # (texts * examples, layers + 1, width)
    stacked = torch.stack([vectors[text] for column in texts for text in column])
    return torch.stack([pair_features(stacked[:, layer], len(texts)) for layer in range(stacked.shape[1])], 1)


def mean_vectors(model: LanguageModel, tokens: AnyTokenizer, texts: Sequence[str]) -> Tensor:
    """The mean vector over a text's tokens in every layer, the embedding first: (texts, layers + 1, width) float32.

    A text that is longer than the model reads is read in pieces. Special tokens are read and not averaged. A text
    without tokens is NaN.
    """
    before, after = list(tokens.prefix), list(tokens.suffix)
    room = model.max_length - len(before) - len(after)
    pieces = [
        (number, ids[start : start + room])
        for number, ids in enumerate(tokens.encode(list(texts)))
        for start in range(0, len(ids), room)
    ]
    pieces.sort(key=lambda piece: len(piece[1]))
    sums, counts = torch.zeros(len(texts), model.num_layers + 1, model.width), torch.zeros(len(texts))
    device = device_of(model)
    with inference(model):
        for batch in by_length([len(ids) for _, ids in pieces], len(before) + len(after), TOKENS):
            some = [pieces[i] for i in batch]
            rows, lengths = padded([[*before, *ids, *after] for _, ids in some], device)
            positions = torch.arange(rows.shape[1], device=device)
            inside = (positions >= len(before)) & (positions < (lengths - len(after))[:, None])  # (batch, length)
            for layer, states in enumerate(model.layers(rows, lengths)):
                total = (states.float() * inside[..., None]).sum(1).cpu()
                sums[:, layer].index_add_(0, torch.tensor([number for number, _ in some]), total)
            counts.index_add_(0, torch.tensor([number for number, _ in some]), inside.sum(1).float().cpu())
    return torch.where(counts[:, None, None] > 0, sums / counts[:, None, None], torch.nan)


def _fitted(kind: str, penalty: float, x: np.ndarray | sparse.csr_matrix, y: np.ndarray) -> LogisticRegression | Ridge:
    """A linear model of x (n, width) and y (n,)."""
    if kind == "classification":
        model = LogisticRegression(C=1 / penalty, max_iter=1000)
    else:  # it casts y to the type of x, and in 32 bits scores far from 0 would lose what they differ in
        model, x = Ridge(alpha=penalty), x.astype(np.float64)
    with threadpool_limits(limits=1):  # more threads wait for each other on matrices this small
        return model.fit(x, y)


def _values(kind: str, predicted: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """(n,) each: whether a prediction is right, or one minus its squared error over the variance, whose mean is the
    share of the variance that is explained."""
    if kind == "classification":
        return (predicted == truth).astype(float)
    return 1 - (predicted - truth) ** 2 / max(float(truth.var()), 1e-12)


def _dev_size(train: Sequence[Example]) -> int:
    return max(1, int(DEV_SHARE * len(train)))


def _references(train: Sequence[Example], test: Sequence[Example], kind: str) -> dict[str, float]:
    """Baselines without a model: the most frequent label or the mean score, and the linear model of bags of words."""
    labels, truth = (np.array([row.label for row in rows]) for rows in (train, test))
    guess = Counter(labels.tolist()).most_common(1)[0][0] if kind == "classification" else labels.mean()
    constant = "most_frequent" if kind == "classification" else "mean_score"
    references = {constant: float(_values(kind, np.full(len(test), guess), truth).mean())}
    bags = bags_of_words({"train": train, "test": test}, pair=train[0].text_b is not None)
    dev, x = _dev_size(train), bags["train"]
    fits = [_fitted(kind, penalty, x[dev:], labels[dev:]) for penalty in (0.1, *PENALTIES)]
    best = max(fits, key=lambda fit: _values(kind, fit.predict(x[:dev]), labels[:dev]).mean())
    return references | {"bag_of_words": float(_values(kind, best.predict(bags["test"]), truth).mean())}
