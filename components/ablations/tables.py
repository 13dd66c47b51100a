"""The figures of a study: a row a variant, and for a study with milestones one for each of them."""

import json
from pathlib import Path

import numpy as np
import pandas as pd

from components import params, stage, tasks
from components.ablations.effects import Effect, effect, resampled
from components.ablations.folders import LAST, pretrained_folder, transferred_folder
from components.tasks import bootstrap, metrics

PRETRAINING = ("loss", "perplexity", "bits_per_byte")


def variants(all_params: params.Params, study: str) -> list[str]:
    """The variants of a study, its base first."""
    block = all_params.ablations[study]
    return [block.base, *(name for name in block.variants if name != block.base)]


def seeds(all_params: params.Params, study: str, variant: str) -> list[params.Member]:
    """The trainings of a variant."""
    return [params.Member(study, variant, seed) for seed in all_params.ablations[study].seeds]


def pretrained(all_params: params.Params, study: str, variant: str, milestone: str) -> list[dict]:
    """The figures of each seed's pre-training: losses, parameters, tokens, flops, seconds."""
    folders = map(pretrained_folder, seeds(all_params, study, variant))
    return [stage.read_json(folder / ("" if milestone == LAST else milestone) / "figures.json") for folder in folders]


def transferred(all_params: params.Params, study: str, variant: str) -> dict[str, dict[str, dict]]:
    """task -> milestone -> what fine-tuning gave:
    metric, split, protocol, `seconds` of all seeds, and each split's scores over the seeds."""
    results = [stage.read_json(transferred_folder(own) / "metrics.json")["tasks"] for own in seeds(all_params, study, variant)]
    return {
        task: {milestone: _over_seeds([result[task][milestone] for result in results]) for milestone in milestones}
        for task, milestones in results[0].items()
    }  # fmt: skip


def _over_seeds(results: list[dict]) -> dict:
    """One fine-tuning of each seed as one of all."""
    first = results[0]
    values = {
        split: [{metric: result["pretrained"][split][metric]["values"][0] for metric in scores} for result in results]
        for split, scores in first["pretrained"].items()
    }  # fmt: skip
    return {
        **{key: first[key] for key in ("metric", "split", "protocol")},
        "seconds": sum(result["costs"]["pretrained"]["seconds"] for result in results),
        "scores": {split: metrics.summary(rows) for split, rows in values.items()},
    }


def table(all_params: params.Params, study: str) -> pd.DataFrame:
    """Budget, pre-training and scores of every variant, and of each task the effect against the base at the same milestone."""
    block, rows = all_params.ablations[study], []
    results = {variant: transferred(all_params, study, variant) for variant in variants(all_params, study)}
    effects = {task: compared(all_params, study, task, results) for task in block.tasks}
    for variant, scores in results.items():
        for milestone in (*map(str, block.milestones), LAST):
            figures = pretrained(all_params, study, variant, milestone)
            row: dict = {"variant": variant, "milestone": milestone, "n": len(figures)}
            row |= {key: int(np.mean([figure[key] for figure in figures])) for key in ("parameters", "tokens", "steps", "flops")}
            row["seconds"] = np.mean([figure["seconds"] for figure in figures])
            row["finetune_seconds"] = sum(scores[task][milestone]["seconds"] for task in block.tasks) / len(figures)
            for key in PRETRAINING:
                values = [figure[key] for figure in figures]
                row |= {key: np.mean(values), f"{key}_std": np.std(values, ddof=1) if len(values) > 1 else np.nan}
            for task in block.tasks:
                part = scores[task][milestone]
                summary, against = part["scores"][part["split"]][part["metric"]], effects[task].get((variant, milestone))
                row |= {task: summary["mean"], f"{task}_std": summary["std"]}
                row |= {f"{task}_{key}": getattr(against, key, np.nan) for key in ("difference", "low", "high", "deviations")}
                row[f"{task}_verdict"] = against.verdict if against else ""
            rows.append(row)
    frame = pd.DataFrame(rows)
    return frame.astype({column: float for column in frame.columns if column in block.tasks or column.endswith("_std")})


def predictions(all_params: params.Params, study: str, variant: str, task: str, milestone: str, split: str) -> list[dict]:
    """Of each seed: example -> the row with its prediction."""
    folders = [transferred_folder(own) / task / milestone for own in seeds(all_params, study, variant)]
    return [runs for folder in folders for runs in bootstrap.read(folder, split, "pretrained").values()]


def compared(all_params: params.Params, study: str, task: str, results: dict[str, dict]) -> dict[tuple[str, str], Effect]:
    """(variant, milestone) -> the effect against the base, on the examples of the split that tables show."""
    base, *others = results
    split, metric = (results[base][task][LAST][key] for key in ("split", "metric"))
    points = [(variant, milestone) for variant in results for milestone in results[base][task]]
    read = {point: predictions(all_params, study, point[0], task, point[1], split) for point in points}
    # only examples that every run has judged can be compared
    judged = [row for row in tasks.read(Path("data/tasks", task), split) if all(row.id in run for runs in read.values() for run in runs)]
    block = all_params.tasks[task]
    draws = {point: resampled(block, metric, judged, [[run[row.id] for row in judged] for run in runs]) for point, runs in read.items()}
    return {point: effect(draws[point], draws[base, point[1]]) for point in points if point[0] in others}


def readings(all_params: params.Params, study: str, frame: pd.DataFrame) -> list[str]:
    """What the numbers support: a sentence on the effects, and one on unequal budgets where there are."""
    block, last = all_params.ablations[study], frame[frame["milestone"] == LAST]
    base, others = last.iloc[0], last.iloc[1:]
    said = []
    for task in block.tasks:
        for direction in ("higher", "lower"):
            rows = others[others[f"{task}_verdict"] == direction]
            names = [
                f"{row['variant']} ({row[f'{task}_difference']:+.3f} [{row[f'{task}_low']:+.3f}, {row[f'{task}_high']:+.3f}])"
                for _, row in rows.iterrows()
            ]
            if names:
                said.append(f"{task} is {direction} with {', '.join(names)}")
    noise = "of seeds and examples" if len(block.seeds) > 1 else "of examples (one seed says nothing of the noise of training)"
    total = len(others) * len(block.tasks)
    count = sum(int((others[f"{task}_verdict"] == "no difference").sum()) for task in block.tasks)
    undefined = sum(int((others[f"{task}_verdict"] == "undefined").sum()) for task in block.tasks)
    if said:
        sentence = (
            f"Against {base['variant']}: {'; '.join(said)}; {count} of {total} comparisons show no difference beyond the noise {noise}."
        )
    else:
        sentence = f"Against {base['variant']} no variant makes a difference beyond the noise {noise}: none of {total} comparisons does."
    if undefined:
        sentence += f" In {undefined} the score was undefined (constant predictions)."
    uneven = []
    for key, unit in (("tokens", "tokens"), ("steps", "steps"), ("flops", "FLOPs")):
        rows = [f"{row['variant']} {row[key] / base[key]:.2g} ×" for _, row in others.iterrows() if abs(row[key] / base[key] - 1) > 0.1]
        uneven += [f"in {unit} of pre-training {', '.join(rows)} the base's"] if rows else []
    return [sentence] + ([f"The budgets are not equal: {'; '.join(uneven)}."] if uneven else [])


def unguarded(all_params: params.Params, study: str) -> list[str]:
    """Tasks whose dev and test text was not taken out of what a variant read."""
    block, unguarded = all_params.ablations[study], []
    for variant in variants(all_params, study):
        mix = all_params.mixes.get(all_params.encodings[params.read_by(all_params.models, block, variant)].corpus)
        unguarded += [task for task in block.tasks if mix is None or task not in (*mix.tasks, *mix.also_held_out)]
    return list(dict.fromkeys(unguarded))


def change(variant: params.Variant) -> str:
    """What is varied, in a line."""
    parts = [json.dumps(value)[1:-1] for value in (variant.change, {"recipe": variant.recipe} if variant.recipe else {}) if value]
    return ", ".join(parts).replace('"', "") or "–"
