"""The figures of a study: a row a variant, and for a study with checkpoints one for each of them."""

import json
from pathlib import Path

import numpy as np
import pandas as pd

from components import params, stage, tasks
from components.ablations.effects import Effect, effect, resampled
from components.ablations.transfer import LAST
from components.tasks import bootstrap

PRETRAINING = ("loss", "perplexity", "bits_per_byte")


def label(study: str, variant: str) -> str:
    """A variant as tables call it."""
    return variant.removeprefix(f"{study}_")


def members(all_params: params.Params, study: str) -> list[str]:
    """The variants of a study, its base first."""
    base = all_params.ablations[study].base
    return [base, *(name for name, block in all_params.variants.items() if block.study == study and name != base)]


def pretrained(all_params: params.Params, study: str, variant: str, checkpoint: str) -> list[dict]:
    """The figures of each seed's pre-training: losses, parameters, tokens, flops, seconds."""
    folder, block = Path("data/variants", study, variant), all_params.ablations[study]
    return [stage.read_json(folder / str(seed) / ("" if checkpoint == LAST else checkpoint) / "figures.json") for seed in block.seeds]


def transferred(study: str, variant: str) -> dict[str, dict[str, dict]]:
    """task -> checkpoint -> what fine-tuning found."""
    return stage.read_json(Path("data/studies", study, variant, "metrics.json"))["tasks"]


def table(all_params: params.Params, study: str) -> pd.DataFrame:
    """Budget, pre-training and scores of every variant, and of each task the effect against the base at the same checkpoint."""
    block, rows = all_params.ablations[study], []
    found = {variant: transferred(study, variant) for variant in members(all_params, study)}
    effects = {task: compared(all_params, study, task, found) for task in block.tasks}
    for variant, scores in found.items():
        for checkpoint in (*map(str, block.checkpoints), LAST):
            figures = pretrained(all_params, study, variant, checkpoint)
            row: dict = {"variant": label(study, variant), "checkpoint": checkpoint, "n": len(figures)}
            row |= {key: int(np.mean([figure[key] for figure in figures])) for key in ("parameters", "tokens", "steps", "flops")}
            row["seconds"] = np.mean([figure["seconds"] for figure in figures])
            row["finetune_seconds"] = sum(scores[task][checkpoint]["costs"]["pretrained"]["seconds"] for task in block.tasks)
            for key in PRETRAINING:
                values = [figure[key] for figure in figures]
                row |= {key: np.mean(values), f"{key}_std": np.std(values, ddof=1) if len(values) > 1 else np.nan}
            for task in block.tasks:
                part = scores[task][checkpoint]
                summary, against = part["pretrained"][part["split"]][part["metric"]], effects[task].get((variant, checkpoint))
                row |= {task: summary["mean"], f"{task}_std": summary["std"]}
                row |= {f"{task}_{key}": getattr(against, key, np.nan) for key in ("difference", "low", "high", "deviations")}
                row[f"{task}_verdict"] = against.verdict if against else ""
            rows.append(row)
    frame = pd.DataFrame(rows)
    return frame.astype({column: float for column in frame.columns if column in block.tasks or column.endswith("_std")})


def compared(all_params: params.Params, study: str, task: str, found: dict[str, dict]) -> dict[tuple[str, str], Effect]:
    """(variant, checkpoint) -> the effect against the base, on the examples of the split that tables show."""
    base, *others = found
    split, metric = (found[base][task][LAST][key] for key in ("split", "metric"))
    checkpoints = found[base][task]
    read = {(variant, point): bootstrap.read(Path("data/studies", study, variant, task, point), split, "pretrained") for variant in found for point in checkpoints}
    judged = [row for row in tasks.read(Path("data/tasks", task), split) if all(row.id in run for runs in read.values() for run in runs.values())]
    draws = {
        key: resampled(all_params.tasks[task], metric, judged, [[run[row.id] for row in judged] for run in runs.values()]) for key, runs in read.items()
    }
    return {(variant, point): effect(draws[variant, point], draws[base, point]) for variant in others for point in checkpoints}


def readings(all_params: params.Params, study: str, frame: pd.DataFrame) -> list[str]:
    """What the numbers support: a sentence on the effects, and one on unequal budgets where there are."""
    block, last = all_params.ablations[study], frame[frame["checkpoint"] == LAST]
    base, others = last.iloc[0], last.iloc[1:]
    said = []
    for task in block.tasks:
        for direction in ("higher", "lower"):
            rows = others[others[f"{task}_verdict"] == direction]
            names = [f"{row['variant']} ({row[f'{task}_difference']:+.3f} [{row[f'{task}_low']:+.3f}, {row[f'{task}_high']:+.3f}])" for _, row in rows.iterrows()]
            if names:
                said.append(f"{task} is {direction} with {', '.join(names)}")
    noise = "of seeds and examples" if len(block.seeds) > 1 else "of examples (one seed says nothing of the noise of training)"
    total = len(others) * len(block.tasks)
    count = sum(int((others[f"{task}_verdict"] == "no difference").sum()) for task in block.tasks)
    undefined = sum(int((others[f"{task}_verdict"] == "undefined").sum()) for task in block.tasks)
    sentence = f"Against {base['variant']}: {'; '.join(said)}; " if said else f"Against {base['variant']} no variant makes a difference beyond the noise {noise}: "
    sentence += f"{count} of {total} comparisons show no difference beyond the noise {noise}." if said else f"none of {total} comparisons does."
    if undefined:
        sentence += f" In {undefined} the score was undefined (constant predictions)."
    uneven = []
    for key, unit in (("tokens", "tokens"), ("steps", "steps"), ("flops", "FLOPs")):
        rows = [f"{row['variant']} {row[key] / base[key]:.2g} ×" for _, row in others.iterrows() if abs(row[key] / base[key] - 1) > 0.1]
        uneven += [f"in {unit} of pre-training {', '.join(rows)} the base's"] if rows else []
    return [sentence] + ([f"The budgets are not equal: {'; '.join(uneven)}."] if uneven else [])


def unguarded(all_params: params.Params, study: str) -> list[str]:
    """Tasks whose dev and test text was not taken out of what a variant read."""
    block, found = all_params.ablations[study], []
    for variant in members(all_params, study):
        mix = all_params.mixes.get(all_params.encodings[all_params.variants[variant].encoding].corpus)
        found += [task for task in block.tasks if mix is None or task not in (*mix.tasks, *mix.also_held_out)]
    return list(dict.fromkeys(found))


def change(variant: params.Variant) -> str:
    """What is varied, in a line."""
    parts = [json.dumps(value)[1:-1] for value in (variant.change, {"recipe": variant.recipe} if variant.recipe else {}) if value]
    return ", ".join(parts).replace('"', "") or "–"
