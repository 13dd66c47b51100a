"""`python -m components.finetune.baseline TASK`: baselines without pre-training, on the same examples -> data/baselines/<task>/.

The most frequent label; the cosine of two TF-IDF bags of words, which is search before BERT; linear models over these
bags, for a pair over [u, v, |u - v|, u * v], or over its second text only, which shows how much the labels depend on how
the texts were written (Gururangan et al. 2018). These draw no random numbers: their deviation is that of the training
examples, and they run once where all examples are used. Then networks over randomly initialised token vectors: a deep
averaging network, decomposable attention and a biLSTM with attention.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from scipy import sparse
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.svm import LinearSVC, LinearSVR
from torch import Tensor, nn

from components import params
from components.comparison import calibration
from components.core import words
from components.core.tracking import Run
from components.finetune import kinds, loop, runs
from components.finetune.data import Encoded, stacked
from components.finetune.task_setup import TaskSetup, reported_split
from components.models import store
from components.models.common.decomposable_attention import pair_head
from components.models.common.heads import BiLSTMAttentionHead, OneLayer, mean_over_tokens, pair_features, scores
from components.params.tasks import NO_ANSWER
from components.stages import stage
from components.tasks import Example, metrics
from components.tasks.bags import bags_of_words, word_weights
from components.text import tokenizer


class CenteredSVR(LinearSVR):
    """A linear SVM for scores with any zero: LinearSVR regularises its intercept, so that years as scores would be predicted
    at chance."""

    def fit(self, features: sparse.csr_matrix, scores: list[float]) -> "CenteredSVR":
        self.mean = float(np.mean(scores))
        return super().fit(features, np.subtract(scores, self.mean))

    def predict(self, features: sparse.csr_matrix) -> np.ndarray:
        return super().predict(features) + self.mean


LINEAR = {
    "logistic_regression": {"classification": LogisticRegression(max_iter=1000), "regression": Ridge(alpha=1.0)},
    "linear_svm": {
        "classification": LinearSVC(dual=False), "regression": CenteredSVR(loss="squared_epsilon_insensitive", dual=False),
    },
}
LINEAR["second_text"] = LINEAR["logistic_regression"]
SUPPORTED_KINDS = {
    "majority": {"classification", "tagging", "text", "extraction"}, "logistic_regression": {"classification", "regression"},
    "tfidf_cosine": {"regression"}, "second_text": {"classification", "regression"},
    "linear_svm": {"classification", "regression"}, "averaging": {"classification", "regression"},
    "decomposable_attention": {"classification", "regression"}, "bilstm": set(kinds.KINDS),
}  # fmt: skip
"""The kinds of tasks that a baseline supports."""
WORD = re.compile(words.WORD)
PAIRS_ONLY = ("tfidf_cosine", "second_text")
OF_WORDS = (*LINEAR, "tfidf_cosine")


def supports(method: str, task: params.Task, pair: bool) -> bool:
    if method == "majority" and task.kind == "extraction":
        return task.unanswerable
    return task.kind in SUPPORTED_KINDS[method] and (pair or method not in PAIRS_ONLY)


def usable(methods: Sequence[str], setup: TaskSetup) -> list[str]:
    """The baselines that support a task. Bags of words are left out, with a message, where no training text has a word."""
    chosen = [method for method in methods if supports(method, setup.task, setup.pair)]
    texts = {method: [row.text_b if method == "second_text" else f"{row.text_a} {row.text_b or ''}" for row in setup.examples["train"]]
             for method in OF_WORDS}  # fmt: skip
    for method in [method for method in chosen if method in OF_WORDS and not any(map(WORD.search, texts[method]))]:
        print(f"{method}: left out, since no training text of {setup.name} has a letter or a digit to count words by", flush=True)
        chosen.remove(method)
    return chosen


class FittedBaseline(NamedTuple):
    """A fitted baseline and its predictions."""

    predictions: list[dict[str, list]]
    """Split -> predictions, for each seed; for a single run where neither weights nor training examples depend on the seed."""
    parameters: int
    tokens: int = 0
    """Read in training."""
    flops: int = 0
    logits: Sequence[dict[str, np.ndarray]] = ()
    """Split -> logits (examples, labels), for each run; empty where it has no probabilities."""

    def score(self, setup: TaskSetup, split: str) -> dict[str, dict]:
        """Metric -> its summary over the runs."""
        examples = setup.examples[split]
        return metrics.summary([metrics.evaluate(setup.task, split, examples, predictions[split]) for predictions in self.predictions])

    def probabilities(self, setup: TaskSetup, splits: list[str], scaled: bool) -> list[tuple[dict[str, np.ndarray], float]]:
        """For each run: split -> the labels' probabilities, and their temperature."""
        labels = calibration.label_indices(setup.task, setup.examples["dev"]) if self.logits else None
        return [calibration.split_probabilities({split: logits[split] for split in splits}, labels, scaled) for logits in self.logits]


def majority(task: params.Task, rows: dict[str, list[Example]]) -> dict[str, list]:
    """The most frequent label, for tagging that of each word; for a text the source itself, and for a question that it has no answer."""
    if task.kind == "text":
        return {split: [row.text_a for row in examples] for split, examples in rows.items()}
    if task.kind == "extraction":
        return {split: [NO_ANSWER] * len(examples) for split, examples in rows.items()}
    if rows["train"][0].words is None:
        [(label, _)] = Counter(row.label for row in rows["train"]).most_common(1)
        return {split: [label] * len(examples) for split, examples in rows.items()}
    counts: dict[str, Counter] = {}
    for row in rows["train"]:
        for word, tag in zip(row.words, row.label, strict=True):
            counts.setdefault(word.lower(), Counter())[tag] += 1
    [(rest, _)] = sum(counts.values(), Counter()).most_common(1)
    best = {word: tags.most_common(1)[0][0] for word, tags in counts.items()}
    return {split: [[best.get(word.lower(), rest) for word in row.words] for row in examples] for split, examples in rows.items()}


def tfidf_cosine(task: params.Task, rows: dict[str, list[Example]]) -> dict[str, list[float]]:
    """The cosine of the two texts' bags of words, 0 to 1 on the task's range: nothing is learnt but how rare a word is."""
    # correlations clip to the range: of 1 to 5, every cosine would be 1
    low, high = task.range or (0.0, 1.0)
    bags = word_weights(rows, pair=True)
    return {
        split: (low + (high - low) * np.asarray(u.multiply(v).sum(1)).ravel()).tolist() for split, [u, v] in bags.items()
    }  # fmt: skip


def linear(method: str, task: params.Task, rows: dict[str, list[Example]], pair: bool) -> FittedBaseline:
    """A linear model over bags of words."""
    if method == "second_text":
        rows = {split: [replace(row, text_a=row.text_b, text_b=None) for row in examples] for split, examples in rows.items()}
        pair = False
    features = bags_of_words(rows, pair)
    model = LINEAR[method][task.kind].fit(features["train"], [row.label for row in rows["train"]])
    size = int(model.coef_.size + getattr(model.intercept_, "size", 1))
    logits = ()
    if isinstance(model, LogisticRegression):
        logits = [{split: label_logits(model, task, x) for split, x in features.items()}]
    return FittedBaseline([{split: model.predict(x).tolist() for split, x in features.items()}], size, logits=logits)


def label_logits(model: LogisticRegression, task: params.Task, features: sparse.csr_matrix) -> np.ndarray:
    """Log-probabilities of the task's labels, (examples, labels); a label without training examples stays impossible at any
    temperature."""
    logits = np.full((features.shape[0], len(task.labels)), calibration.IMPOSSIBLE)
    logits[:, [task.labels.index(label) for label in model.classes_]] = model.predict_log_proba(features)
    return logits


def token_vectors(vocab_size: int, block: params.Baselines) -> nn.Embedding:
    """Normally distributed, with `embedding_std`."""
    vectors = nn.Embedding(vocab_size, block.embedding_size)
    vectors.weight.data *= block.embedding_std
    return vectors


class Averaging(nn.Module):
    """A deep averaging network (Iyyer et al. 2015): the mean of the token vectors, two layers; for a pair [u, v, |u - v|, u * v]."""

    def __init__(self, vocab_size: int, block: params.Baselines, kind: kinds.Kind, pair: bool):
        super().__init__()
        self.vectors = token_vectors(vocab_size, block)
        size, recipe = block.embedding_size, block.recipe
        self.head = nn.Sequential(
            nn.Dropout(recipe.dropout), nn.Linear((4 if pair and not kind.joined else 1) * size, recipe.hidden_size), nn.ReLU(),
            nn.Linear(recipe.hidden_size, kind.outputs),
        )  # fmt: skip

    def forward(self, texts: list[tuple[Tensor, Tensor]], segments: Tensor) -> Tensor:
        means = [mean_over_tokens(self.vectors(ids), lengths) for ids, lengths in texts]
        return scores(self.head, pair_features(torch.cat(means), len(texts)))


class DecomposableAttention(nn.Module):
    """Token vectors and a decomposable attention head: a pair is compared token by token (Parikh et al. 2016), a text is the mean of
    its vectors."""

    def __init__(self, vocab_size: int, block: params.Baselines, kind: kinds.Kind, pair: bool):
        super().__init__()
        self.vectors = token_vectors(vocab_size, block)
        recipe = block.recipe
        mix, apart = OneLayer(normalised=True), pair and not kind.joined
        self.head = pair_head(mix, block.embedding_size, recipe.hidden_size, kind.outputs, recipe.dropout, apart, kind.per_token)

    def forward(self, texts: list[tuple[Tensor, Tensor]], segments: Tensor) -> Tensor:
        ids, lengths = stacked(texts)
        return self.head(self.vectors(ids)[:, :, None], lengths, len(texts))


class BiLSTM(nn.Module):
    """GLUE's baseline without pre-training (Wang et al. 2018): token vectors, biLSTM, attention."""

    def __init__(self, vocab_size: int, block: params.Baselines, kind: kinds.Kind, pair: bool):
        super().__init__()
        self.vectors = token_vectors(vocab_size, block)
        size, recipe = block.embedding_size, block.recipe
        self.head = BiLSTMAttentionHead(
            nn.Identity(), size, recipe.hidden_size, kind.outputs, recipe.dropout, pair and not kind.joined, kind.per_token
        )

    def forward(self, texts: list[tuple[Tensor, Tensor]], segments: Tensor) -> Tensor:
        ids, lengths = stacked(texts)
        return self.head(self.vectors(ids), lengths, len(texts))


NETWORKS = {"averaging": Averaging, "decomposable_attention": DecomposableAttention, "bilstm": BiLSTM}


def baseline(all_params: params.Params, name: str, run: Run) -> dict:
    block = all_params.baselines
    setup = TaskSetup.load(all_params, name)
    task, split_shown = setup.task, reported_split(setup.task)
    labelled = [split for split, config in task.splits.items() if config.labelled and split != "train"]
    baselines, calibrations, rows, tokens, flops = {}, {}, [], 0, 0
    for method in usable(block.methods, setup):
        fitted = fit(all_params, setup, method)
        tokens += fitted.tokens
        flops += fitted.flops
        seeds = all_params.finetune.seeds if len(fitted.predictions) > 1 or method in NETWORKS else [None]
        probabilities = fitted.probabilities(setup, labelled, block.recipe.temperature_scaling)
        for seed, predictions, of_run in zip(seeds, fitted.predictions, probabilities or [None] * len(seeds), strict=True):
            for split in labelled:
                new = runs.prediction_rows(method, seed, split, setup.examples[split], predictions[split])
                if of_run:
                    for row, shares in zip(new, of_run[0][split], strict=True):
                        row["probabilities"] = list(map(float, shares))
                rows += new
        if probabilities:
            calibrations[method] = {split: calibration_summary(setup, split, probabilities) for split in labelled}
        baselines[method] = {"trainable_parameters": fitted.parameters} | {split: fitted.score(setup, split) for split in labelled}
        print(f"{method}: {split_shown} {task.metric} {metrics.shown(baselines[method][split_shown][task.metric]['mean'])}", flush=True)
    runs.write_predictions(Path("data/baselines", name), rows, labelled)
    run.tag(model="baseline", task=name)
    return {
        "task": name, "metric": task.metric, "split": split_shown, "baselines": baselines, "calibration": calibrations,
        "protocol": setup.protocol(block.recipe, note=" (networks)"),
        "cost": {"tokens": tokens, "flops": flops, "gpus": int(setup.on_gpu)},
    }  # fmt: skip


def calibration_summary(setup: TaskSetup, split: str, probabilities: list[tuple[dict[str, np.ndarray], float]]) -> dict[str, dict]:
    """Calibration metrics of a split, summarised over the runs."""
    labels = calibration.label_indices(setup.task, setup.examples[split])
    return metrics.summary(
        [calibration.evaluate(of_run[split], labels) | {"temperature": temperature} for of_run, temperature in probabilities]
    )


def fit(all_params: params.Params, setup: TaskSetup, method: str) -> FittedBaseline:
    """Fit a baseline to the training examples that each seed draws."""
    if method in NETWORKS:
        return fit_networks(all_params, setup, method)
    fitted = []
    for seed in all_params.finetune.seeds if setup.samples_train else all_params.finetune.seeds[:1]:
        examples = setup.for_seed(seed).examples
        if method == "majority":
            fitted.append(FittedBaseline([majority(setup.task, examples)], 0))
        elif method == "tfidf_cosine":
            fitted.append(FittedBaseline([tfidf_cosine(setup.task, examples)], 0))
        else:
            fitted.append(linear(method, setup.task, examples, setup.pair))
    logits = [of_run for baseline in fitted for of_run in baseline.logits]
    return FittedBaseline([baseline.predictions[0] for baseline in fitted], fitted[0].parameters, logits=logits)


def fit_networks(all_params: params.Params, setup: TaskSetup, method: str) -> FittedBaseline:
    """Train a network with each seed."""
    block, tokens = all_params.baselines, tokenizer.load(Path("data/tokenizers", all_params.baselines.tokenizer))
    predictions, logits, tokens_read, flops = [], [], 0, 0
    encoded: dict[str, Encoded] = {}
    for seed in all_params.finetune.seeds:
        torch.manual_seed(seed)
        kind, examples = kinds.build(setup.task, block.recipe), setup.for_seed(seed).examples
        module = setup.fabric.to_device(NETWORKS[method](tokens.vocab_size, block, kind, setup.pair))
        # only the training split depends on the seed
        encoded |= {split: kind.encode(rows, tokens) for split, rows in examples.items() if split == "train" or split not in encoded}
        result = loop.fit(
            setup.fabric, module, kind, encoded["train"], block.recipe, seed, lambda epoch, loss: None, setup.dev_score(), encoded["dev"],
        )  # fmt: skip
        by_split = {split: result.predict(data) for split, data in encoded.items()}
        predictions.append({split: predicted.values for split, predicted in by_split.items()})
        logits += [{split: predicted.logits for split, predicted in by_split.items()}] if kind.outputs_are_labels else []
        tokens_read += result.tokens
        flops += result.flops
    return FittedBaseline(predictions, store.count_parameters(module), tokens_read, flops, logits)


if __name__ == "__main__":
    stage.main("baseline", baseline)
