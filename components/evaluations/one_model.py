"""Evaluates one model, and writes its answers."""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import MappingProxyType

import numpy as np
import torch

from components.evaluations.contract import Answers
from components.models import store


def evaluate_model(kind: str, evaluation: str, weights: Path, seed: int | None = None) -> Answers:
    """Evaluate the model in a folder with its weights, or with random ones drawn from `seed`."""
    if seed is not None:
        torch.manual_seed(seed)
    model, tokens = store.load(weights, pretrained=seed is None)
    module = import_module(f"components.evaluations.{kind}.evaluation")
    return module.evaluate(Path("data/evaluations", evaluation), model, tokens, str(weights))


def write_items(file: Path, answers: Answers, others: Mapping[str, np.ndarray] = MappingProxyType({})) -> None:
    """Write one row per item with its weight, its score, and the scores of `others`: more pre-trainings, random weights."""
    shared = {"cluster": answers.clusters, "stratum": answers.strata}
    shared = {column: values for column, values in shared.items() if values is not None}
    items = answers.items.assign(**shared, weight=answers.weights, score=answers.values, **others)
    items.to_csv(file, index=False, float_format="%.6g", lineterminator="\n")
