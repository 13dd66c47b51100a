"""Evaluates one seed of a variant without tuning it."""

from pathlib import Path

import numpy as np

from components.evaluations import one_model
from components.evaluations.contract import rule
from components.params import Member, Params
from components.studies import folders
from components.studies.folders import LAST


def evaluate(all_params: Params, member: Member, target: Path) -> dict[str, dict[str, dict]]:
    """evaluation -> milestone -> protocol, measure, score and those of references. The items are written to the target
    folder."""
    study, weights, results = all_params.studies[member.study], folders.weights_folder(all_params, member), {}
    seed = member.seed if study.variants[member.variant].init == "random" else None
    for evaluation in study.evaluations:
        for milestone in (*map(str, study.milestones), LAST):
            folder = weights / ("" if milestone == LAST else milestone)
            answers = one_model.evaluate_model(all_params.evaluations[evaluation].kind, evaluation, folder, seed)
            (target / evaluation / milestone).mkdir(parents=True)
            one_model.write_items(target / evaluation / milestone / "items.csv", answers)
            known = np.isfinite(answers.values)
            score = float(np.average(answers.values[known], weights=answers.weights[known]))
            results.setdefault(evaluation, {})[milestone] = {
                "protocol": rule([answers]), "measure": answers.measure, "score": score,
                "references": answers.figures.get("references", {}),
            }  # fmt: skip
            print(f"{evaluation}, {milestone}: {answers.measure} {score:.3f}", flush=True)
    return results
