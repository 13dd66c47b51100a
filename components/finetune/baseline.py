"""`python -m components.finetune.baseline TASK`: what needs no pre-training, on the same examples -> data/baselines/<task>/.

The commonest label; linear models over TF-IDF bags of words, for a pair over [u, v, |u - v|, u * v], or of its second text alone, which
shows what the labels owe to the way that the texts were written (Gururangan et al. 2018): all these draw no random numbers, and their
spread is that of the training examples, one run where these are all that there are; and networks over token vectors that start at
random: a deep averaging network, decomposable attention and a biLSTM with attention.
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
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.svm import LinearSVC, LinearSVR
from torch import Tensor, nn

from components import params
from components.comparison import calibration
from components.core import words
from components.core.tracking import Run
from components.finetune import kinds, loop, runs
from components.finetune.bench import Bench, judged
from components.finetune.data import Encoded, stacked
from components.models import store
from components.models.common.decomposable_attention import pair_head
from components.models.common.heads import BiLSTMAttentionHead, OneLayer, mean_over_tokens, pair_features
from components.stages import stage
from components.tasks import Example, metrics
from components.text import tokenizer

LINEAR = {
    "logistic_regression": {"classification": LogisticRegression(max_iter=1000), "regression": Ridge(alpha=1.0)},
    "linear_svm": {"classification": LinearSVC(dual=False), "regression": LinearSVR(loss="squared_epsilon_insensitive", dual=False)},
}
LINEAR["second_text"] = LINEAR["logistic_regression"]
FITS = {
    "majority": {"classification", "tagging", "text"}, "logistic_regression": {"classification", "regression"},
    "second_text": {"classification", "regression"},
    "linear_svm": {"classification", "regression"}, "averaging": {"classification", "regression"},
    "decomposable_attention": {"classification", "regression"}, "bilstm": set(kinds.KINDS),
}  # fmt: skip
"""The kinds of tasks that a baseline can do."""
WORD = re.compile(words.WORD)
OF_PAIRS = ("second_text",)


def fits(method: str, task: params.Task, pair: bool) -> bool:
    """Whether a baseline says anything of a task."""
    return task.kind in FITS[method] and (pair or method not in OF_PAIRS)


def usable(methods: Sequence[str], bench: Bench) -> list[str]:
    """The baselines that say anything of a task; a bag of words is left out, with a line, where no training text has a
    word."""
    chosen = [method for method in methods if fits(method, bench.task, bench.pair)]
    texts = {method: [row.text_b if method == "second_text" else f"{row.text_a} {row.text_b or ''}" for row in bench.rows["train"]]
             for method in LINEAR}  # fmt: skip
    for method in [method for method in chosen if method in LINEAR and not any(map(WORD.search, texts[method]))]:
        print(f"{method}: left out, since no training text of {bench.name} has a letter or a digit to count words by", flush=True)
        chosen.remove(method)
    return chosen


def bag_of_words(rows: dict[str, list[Example]], pair: bool) -> dict[str, sparse.csr_matrix]:
    """Features of each split, (examples, words), words and weights from the training split only."""
    vectorizer = TfidfVectorizer(lowercase=True, token_pattern=WORD.pattern, sublinear_tf=True)
    vectorizer.fit(text for row in rows["train"] for text in (row.text_a, row.text_b) if text)
    features = {}
    for split, examples in rows.items():
        u = vectorizer.transform(row.text_a for row in examples)
        if pair:
            v = vectorizer.transform(row.text_b for row in examples)
            u = sparse.hstack([u, v, abs(u - v), u.multiply(v)]).tocsr()
        features[split] = u
    return features


class Fitted(NamedTuple):
    """A baseline that has learned."""

    predictions: list[dict[str, list]]
    """Of every split, by each seed; by one run where nothing is drawn, neither weights nor training examples."""
    parameters: int
    tokens: int = 0
    """Read in training."""
    flops: int = 0
    logits: Sequence[dict[str, np.ndarray]] = ()
    """Of the labels, (examples, labels), likewise; nothing where it has no probabilities."""

    def score(self, bench: Bench, split: str) -> dict[str, dict]:
        """Metric -> its summary over the runs."""
        return metrics.summary([metrics.evaluate(bench.task, split, bench.rows[split], predicted[split]) for predicted in self.predictions])

    def likely(self, bench: Bench, splits: list[str], scaled: bool) -> list[tuple[dict[str, np.ndarray], float]]:
        """Of each run the probabilities of the labels, and the temperature that made them."""
        labels = calibration.gold(bench.task, bench.rows["dev"]) if self.logits else None
        return [calibration.of_splits({split: own[split] for split in splits}, labels, scaled) for own in self.logits]


def majority(task: params.Task, rows: dict[str, list[Example]]) -> dict[str, list]:
    """The commonest label, or for tags that of each word, everywhere; for a text the source, which has no commonest answer."""
    if task.kind == "text":
        return {split: [row.text_a for row in examples] for split, examples in rows.items()}
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


def linear(method: str, task: params.Task, rows: dict[str, list[Example]], pair: bool) -> Fitted:
    """A linear model over bags of words."""
    if method == "second_text":
        rows, pair = {split: [replace(row, text_a=row.text_b, text_b=None) for row in part] for split, part in rows.items()}, False
    features = bag_of_words(rows, pair)
    model = LINEAR[method][task.kind].fit(features["train"], [row.label for row in rows["train"]])
    size = int(model.coef_.size + getattr(model.intercept_, "size", 1))
    logits = [{split: logarithms(model, task, part) for split, part in features.items()}] if isinstance(model, LogisticRegression) else ()
    return Fitted([{split: model.predict(part).tolist() for split, part in features.items()}], size, logits=logits)


def logarithms(model: LogisticRegression, task: params.Task, features: sparse.csr_matrix) -> np.ndarray:
    """Of the probabilities of the task's labels in their order, (examples, labels); one that no example had is impossible,
    whatever temperature they are divided by."""
    made, known = np.full((features.shape[0], len(task.labels)), -1e9), model.classes_.tolist()
    made[:, [task.labels.index(label) for label in known]] = model.predict_log_proba(features)
    return made


def token_vectors(vocab_size: int, block: params.Baselines) -> nn.Embedding:
    """Normal, of the deviation that the params name."""
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
        return self.head(pair_features(torch.cat(means), len(texts)))


class DecomposableAttention(nn.Module):
    """Token vectors under the head of that name: a pair is compared token by token (Parikh et al. 2016), a text is the mean of its
    vectors."""

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
    """The GLUE baseline without pre-training (Wang et al. 2018): token vectors, biLSTM, attention."""

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
    block, bench = all_params.baselines, Bench.of(all_params, name)
    task, rows = bench.task, bench.rows
    labelled = [split for split, part in task.splits.items() if part.labelled and split != "train"]
    baselines, believed, lines, tokens, flops = {}, {}, [], 0, 0
    for method in usable(block.methods, bench):
        fitted = fit(all_params, bench, method)
        tokens, flops = tokens + fitted.tokens, flops + fitted.flops
        seeds = all_params.finetune.seeds if len(fitted.predictions) > 1 or method in NETWORKS else [None]
        likely = fitted.likely(bench, labelled, block.recipe.temperature_scaling)
        for seed, predicted, own in zip(seeds, fitted.predictions, likely or [None] * len(seeds), strict=True):
            for split in labelled:
                made = runs.predicted(method, seed, split, rows[split], predicted[split])
                if own:
                    for row, shares in zip(made, own[0][split], strict=True):
                        row["probabilities"] = list(map(float, shares))
                lines += made
        if likely:
            believed[method] = {split: summary_of(bench, split, likely) for split in labelled}
        baselines[method] = {"trainable_parameters": fitted.parameters} | {split: fitted.score(bench, split) for split in labelled}
        shown = baselines[method][judged(task)][task.metric]["mean"]
        print(f"{method}: {judged(task)} {task.metric} {metrics.shown(shown)}", flush=True)
    runs.write_predictions(Path("data/baselines", name), lines, labelled)
    run.tag(model="baseline", task=name)
    return {
        "task": name, "metric": task.metric, "split": judged(task), "baselines": baselines, "calibration": believed,
        "protocol": bench.protocol(block.recipe, note=" (networks)"),
        "cost": {"tokens": tokens, "flops": flops, "gpus": int(bench.on_gpu)},
    }  # fmt: skip


def summary_of(bench: Bench, split: str, likely: list[tuple[dict[str, np.ndarray], float]]) -> dict[str, dict]:
    """How far the probabilities of all runs are to be believed on a split."""
    labels = calibration.gold(bench.task, bench.rows[split])
    return metrics.summary([calibration.evaluate(own[split], labels) | {"temperature": temperature} for own, temperature in likely])


def fit(all_params: params.Params, bench: Bench, method: str) -> Fitted:
    """Learn what a baseline learns, on the training examples that each seed draws."""
    if method in NETWORKS:
        return networks(all_params, bench, method)
    seeds = all_params.finetune.seeds if bench.draws else all_params.finetune.seeds[:1]
    fitted = [_one(method, bench.of_seed(seed)) for seed in seeds]
    return Fitted([own.predictions[0] for own in fitted], fitted[0].parameters, logits=[part for own in fitted for part in own.logits])


def _one(method: str, bench: Bench) -> Fitted:
    """What draws no random numbers, on one set of training examples."""
    if method == "majority":
        return Fitted([majority(bench.task, bench.rows)], 0)
    return linear(method, bench.task, bench.rows, bench.pair)


def networks(all_params: params.Params, bench: Bench, method: str) -> Fitted:
    """A network of each seed."""
    block, tokens = all_params.baselines, tokenizer.load(Path("data/tokenizers", all_params.baselines.tokenizer))
    predictions, logits, read, flops = [], [], 0, 0
    encoded: dict[str, Encoded] = {}
    for seed in all_params.finetune.seeds:
        torch.manual_seed(seed)
        kind, rows = kinds.build(bench.task, block.recipe), bench.of_seed(seed).rows
        module = bench.fabric.to_device(NETWORKS[method](tokens.vocab_size, block, kind, bench.pair))
        # what is judged is the same for every seed
        encoded |= {split: kind.encode(part, tokens) for split, part in rows.items() if split == "train" or split not in encoded}
        fitted = loop.fit(
            bench.fabric, module, kind, encoded["train"], block.recipe, seed, lambda epoch, loss: None, bench.judge(), encoded["dev"],
        )  # fmt: skip
        said = {split: fitted.predict(part) for split, part in encoded.items()}
        predictions.append({split: own.values for split, own in said.items()})
        logits += [{split: own.logits for split, own in said.items()}] if kind.outputs_are_labels else []
        read, flops = read + fitted.tokens, flops + fitted.flops
    return Fitted(predictions, store.count_parameters(module), read, flops, logits)


if __name__ == "__main__":
    stage.main("baseline", baseline)
