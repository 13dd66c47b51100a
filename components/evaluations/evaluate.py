"""`python -m components.evaluations.evaluate MODEL-EVALUATION`: evaluate a model, next to randomly initialised ones.

-> data/evaluated/MODEL/EVALUATION/items.csv, one row per item. All pre-trainings of the model are evaluated.
"""

from collections.abc import Sequence
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np

from components.comparison import verdicts
from components.core import compute, storage
from components.core.errors import SesameError
from components.core.tracking import Run
from components.evaluations.contract import Answers, rule, side, weights_among
from components.evaluations.one_model import evaluate_model, write_items
from components.models.pretrainings import pretrainings
from components.params import Params
from components.stages import stage


def evaluate(params: Params, name: str, run: Run) -> dict:
    """Evaluate a model and its random twins. Raises SesameError for a model that this evaluation does not support."""
    model, _, evaluation = name.partition("-")
    compute.prepare(params.finetune.threads)
    kind = params.evaluations[evaluation].kind
    first, *others = pretrainings(Path("data/models", model))
    of_trained = [evaluate_model(kind, evaluation, weights) for weights in (first, *others)]
    answers, trained = of_trained[0], np.stack([each.values for each in of_trained])
    averaged = {key: float(np.mean([each.averaged[key] for each in of_trained])) for key in answers.averaged}
    of_twins = [evaluate_model(kind, evaluation, first, seed) for seed in params.evaluate.twins]
    twins = np.stack([twin.values for twin in of_twins])
    columns = {f"score_{other.name}": values for other, values in zip(others, trained[1:], strict=True)}
    columns |= {f"random_{seed}": values for seed, values in zip(params.evaluate.twins, twins, strict=True)}
    with storage.output(Path("data/evaluated", model, evaluation)) as folder:
        folder.mkdir()
        write_items(folder / "items.csv", answers, columns)
        figures = compare(answers, trained, twins)
    runs = f"{len(trained)} pre-trainings, " if others else ""
    print(
        f"{rule(of_trained)}: {answers.measure} {figures['score']:.3f}, from random weights {figures['random']['mean']:.3f}; "
        f"{runs}{figures['items']:,} items, {figures['left_out']:,} left out"
    )
    layers = by_layer(of_trained, of_twins)
    for number, layer in enumerate(layers):
        print(f"layer {number}: " + ", ".join(f"{key.replace('_', ' ')} {value:.3f}" for key, value in layer.items()))
    about = {"protocol": rule(of_trained), "measure": answers.measure}
    return about | answers.figures | averaged | figures | ({"layers": layers} if layers else {})


def by_layer(trained: Sequence[Answers], twins: Sequence[Answers]) -> list[dict[str, float]]:
    """Figures of every layer, each the mean over the pre-trainings, and `random_score`: the mean score of the random twins."""
    return [
        {key: float(np.mean([each.layers[number][key] for each in trained])) for key in layer}
        | {"random_score": float(np.mean([twin.layers[number]["score"] for twin in twins]))}
        for number, layer in enumerate(trained[0].layers)
    ]


def compare(answers: Answers, trained: np.ndarray, twins: np.ndarray) -> dict[str, Any]:
    """The score, the score of random weights, and their difference with its interval.

    Several pre-trainings are a sample of all possible ones, and the interval is over them, items and random weights. A single
    pre-training is taken as given: its interval is over items and random weights, and another pre-training may differ. A single item has
    neither error nor interval. Raises SesameError where no item was scored.

    Args:
        answers: of the first pre-training
        trained: (pre-trainings, items), the first one's values first
        twins: (twins, items), scores of random weights
    """
    known = np.isfinite(trained).all(0) & np.isfinite(twins).all(0)
    if not known.any():
        raise SesameError(f"none of {len(known):,} items was scored: each is longer than the model reads; give shorter ones")
    weights, groups = weights_among(answers.weights, answers.strata, known), answers.groups[known]
    clusters = None if answers.clusters is None else answers.clusters[known]
    ours = side(trained[:, known], weights, len(trained) > 1, clusters)
    theirs = side(twins[:, known], weights, True, clusters)
    error = sqrt(verdicts.jackknife(ours.without.mean(1)) + (ours.variance if ours.drawn else 0)) if len(ours.without) else None
    difference = verdicts.difference(ours, theirs)
    gain = {key: getattr(difference, key) for key in ("difference", "low", "high", "p", "detectable")}
    by_group = {
        group: {
            "score": float(np.average(trained[:, known][:, inside].mean(0), weights=weights[inside])), "items": int(inside.sum()),
            "random": float(np.average(twins[:, known][:, inside].mean(0), weights=weights[inside])),
        }
        for group in dict.fromkeys(groups.tolist()) for inside in [groups == group]
    }  # fmt: skip
    return {
        "score": ours.mean, "error": error,
        "items": int(known.sum()), "left_out": int((~known).sum()),
        "pretrainings": [float(score) for score in ours.scores],
        "random": {"mean": theirs.mean, "std": float(theirs.scores.std(ddof=1)), "n": theirs.runs},
        "gain": {key: None if np.isnan(value) else value for key, value in gain.items()},
        "groups": by_group,
    }  # fmt: skip


if __name__ == "__main__":
    stage.main("evaluate", evaluate)
