"""The best model of a study in MLflow's registry, by an explicit command and never as a side effect."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from components import params
from components.core import tracking
from components.core.errors import SesameError
from components.models import store
from components.notebook.logged import log_model
from components.studies import tables
from components.studies.folders import LAST, weights_folder


@dataclass(frozen=True)
class Champion:
    """A pre-trained model of a study."""

    variant: str
    seed: int
    folder: Path
    score: float
    """Mean over the study's tasks of the main metric on dev."""
    equals: int = 0
    """Other models with the same score, of which it is the first in the order of params."""


def best(all_params: params.Params, study: str) -> Champion:
    """The variant and seed of a study with tasks that have the highest mean score on dev; test scores play no role."""
    champions = []
    for variant in tables.variants(all_params, study):
        if all_params.studies[study].variants[variant].init == "random":
            continue  # it has no model of its own
        results = [milestones[LAST] for milestones in tables.transferred(all_params, study, variant).values()]
        # a float array makes None a NaN
        scores = np.array([result["scores"]["dev"][result["metric"]]["values"] for result in results], dtype=float)
        for member, score in zip(tables.seeds(all_params, study, variant), scores.mean(0), strict=True):
            if not np.isnan(score):
                champions.append(Champion(variant, member.seed, weights_folder(all_params, member), float(score)))
    if not champions:
        raise SesameError(f"no variant of study {study} has a score on every task")
    chosen = max(champions, key=lambda one: one.score)
    return replace(chosen, equals=sum(one.score == chosen.score for one in champions) - 1)


def registered_name(study: str) -> str:
    """The name of the model in the registry."""
    return f"sesame-{study}"


def register(study: str, chosen: Champion) -> int:
    """Register the model and set the alias; returns the number of its version."""
    try:
        return _register(study, chosen)
    except SesameError:
        raise
    except Exception as error:  # whatever MLflow's client raises
        raise SesameError(tracking.unusable(error)) from None


def _register(study: str, chosen: Champion) -> int:
    client = tracking.client()
    store.about(chosen.folder)  # raises for a missing folder
    tags = {"stage": "champion", "study": study, "variant": chosen.variant, "seed": str(chosen.seed)}
    with tracking.start(f"champion {study}", tags, {"folder": str(chosen.folder)}) as run:
        if run.id is None:
            raise SesameError("MLflow records nothing here (SESAME_TRACKING=off, or it can't be reached): no champion without it")
        run.log({"dev_mean": chosen.score})
        logged = log_model(run.id, chosen.folder, f"{study}-{chosen.variant}", registered_model_name=registered_name(study))
    client.set_registered_model_alias(registered_name(study), "champion", logged.registered_model_version)
    return logged.registered_model_version
