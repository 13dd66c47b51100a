"""`python -m components.evaluations.evaluate MODEL-EVALUATION`: one model's answers, next to those of random weights.

-> data/evaluated/MODEL/EVALUATION/items.csv, an item a row. All pre-trainings of the model are asked.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from math import sqrt
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch

from components.comparison import verdicts
from components.core import compute, storage
from components.core.tracking import Run
from components.evaluations.contract import Answers, side
from components.models import store
from components.models.pretrainings import pretrainings
from components.params import Params
from components.stages import stage


def evaluate(params: Params, name: str, run: Run) -> dict:
    """Ask a model and its random twins; the figures. Raises SesameError for a model that can't be asked so."""
    model, _, evaluation = name.partition("-")
    compute.prepare(params.finetune.threads)
    kind = params.evaluations[evaluation].kind
    first, *others = pretrainings(Path("data/models", model))
    answers = asked(kind, evaluation, first)
    trained = np.stack([answers.values, *(asked(kind, evaluation, other).values for other in others)])
    of_twins = [asked(kind, evaluation, first, seed) for seed in params.evaluate.twins]
    twins = np.stack([twin.values for twin in of_twins])
    columns = {f"score_{other.name}": values for other, values in zip(others, trained[1:], strict=True)}
    columns |= {f"random_{seed}": values for seed, values in zip(params.evaluate.twins, twins, strict=True)}
    with storage.output(Path("data/evaluated", model, evaluation)) as folder:
        folder.mkdir()
        write(folder / "items.csv", answers, columns)
    figures = compared(answers, trained, twins)
    runs = f"{len(trained)} pre-trainings, " if others else ""
    print(
        f"{answers.protocol}: {answers.measure} {figures['score']:.3f}, from random weights {figures['random']['mean']:.3f}; "
        f"{runs}{figures['items']:,} items, {figures['left_out']:,} left out"
    )
    layers = by_layer(answers, of_twins)
    for place, layer in enumerate(layers):
        print(f"layer {place}: " + ", ".join(f"{key.replace('_', ' ')} {value:.3f}" for key, value in layer.items()))
    about = {"protocol": answers.protocol, "measure": answers.measure}
    return about | figures | answers.figures | ({"layers": layers} if layers else {})


def by_layer(answers: Answers, twins: Sequence[Answers]) -> list[dict[str, float]]:
    """Figures of every layer, and `random_score`: the mean of the random weights' there."""
    return [
        {**layer, "random_score": float(np.mean([twin.layers[place]["score"] for twin in twins]))}
        for place, layer in enumerate(answers.layers)
    ]


def asked(kind: str, evaluation: str, weights: Path, seed: int | None = None) -> Answers:
    """The answers of the model in a folder: from its weights, or from random ones that `seed` draws."""
    if seed is not None:
        torch.manual_seed(seed)
    model, tokens = store.load(weights, pretrained=seed is None)
    ask = import_module(f"components.evaluations.{kind}.evaluation").ask
    return ask(Path("data/evaluations", evaluation), model, tokens, str(weights))


def write(file: Path, answers: Answers, others: Mapping[str, np.ndarray] = MappingProxyType({})) -> None:
    """An item a row: what is kept of it, its weight, its score, and those of `others`: further pre-trainings, random weights."""
    clusters = {} if answers.clusters is None else {"cluster": answers.clusters}
    items = answers.items.assign(**clusters, weight=answers.weights, score=answers.values, **others)
    items.to_csv(file, index=False, float_format="%.6g", lineterminator="\n")


def compared(answers: Answers, trained: np.ndarray, twins: np.ndarray) -> dict[str, Any]:
    """The score; that of random weights; their difference, with its interval.

    Several pre-trainings are a sample of those that there could be, and the interval is over them, items and random weights. One is a
    model that is there: its interval is over items and random weights alone, and another pre-training may come out differently.

    Args:
        answers: of the first pre-training
        trained: (pre-trainings, items), the first one's values first
        twins: (twins, items), values of random weights
    """
    known = np.isfinite(trained).all(0) & np.isfinite(twins).all(0)
    weights, groups = answers.weights[known], answers.groups[known]
    clusters = None if answers.clusters is None else answers.clusters[known]
    ours, theirs = side(trained[:, known], weights, len(trained) > 1, clusters), side(twins[:, known], weights, True, clusters)
    difference = verdicts.difference(ours, theirs)
    gain = {key: getattr(difference, key) for key in ("difference", "low", "high", "p", "detectable")}
    by_group = {
        group: {
            "score": float(np.average(trained[:, known][:, own].mean(0), weights=weights[own])), "items": int(own.sum()),
            "random": float(np.average(twins[:, known][:, own].mean(0), weights=weights[own])),
        }
        for group in dict.fromkeys(groups.tolist()) for own in [groups == group]
    }  # fmt: skip
    return {
        "score": ours.mean, "error": sqrt(verdicts.jackknife(ours.without.mean(1)) + (ours.variance if ours.drawn else 0)),
        "items": int(known.sum()), "left_out": int((~known).sum()),
        "pretrainings": [float(score) for score in ours.scores],
        "random": {"mean": theirs.mean, "std": float(theirs.scores.std(ddof=1)), "n": theirs.runs},
        "gain": {key: None if np.isnan(value) else value for key, value in gain.items()},
        "groups": by_group,
    }  # fmt: skip


if __name__ == "__main__":
    stage.main("evaluate", evaluate)
