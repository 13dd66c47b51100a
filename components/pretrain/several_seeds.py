"""A model that is pre-trained with several seeds: the first in `data/models/<name>`, the others in `pretrainings/<number>` below it.

A trained model is stored next to the checkpoints until all seeds are trained, so that a killed stage trains no seed twice.
"""

import shutil
from contextlib import nullcontext
from pathlib import Path

from components.core import processes, storage
from components.core.tracking import Run
from components.params import Model
from components.pretrain.training import checkpoint_folder, pretrain
from components.stages.outputs import read_json

METRICS_OF_ALL_SEEDS = ("loss", "perplexity", "bits_per_byte")


def previous_run(config: Model, name: str) -> str | None:
    """Return the MLflow run of a killed attempt."""
    checkpoints = [checkpoint_folder(config.of_seed(seed), name) for seed in config.seeds]
    files = [folder / "run_id" for checkpoint in checkpoints for folder in (_trained_folder(checkpoint), checkpoint)]
    return next((file.read_text() for file in files if file.exists()), None)


def pretrain_seeds(config: Model, name: str, folder: Path, run: Run) -> tuple[dict, list[dict[str, float]]] | None:
    """Pre-train with every seed; return metrics and curve of the first one, with the cost of all.

    Return None on other ranks than the first.
    """
    folders = {seed: _trained_folder(checkpoint_folder(config.of_seed(seed), name)) for seed in config.seeds}
    # read before the first training: a rank that looked later would see the files that another rank has written by then
    finished = {seed for seed, trained in folders.items() if (trained / "trained.json").exists()}
    for seed, trained in folders.items():
        if processes.rank_zero():
            print(f"seed {seed}{': trained by the previous attempt' if seed in finished else ''}", flush=True)
        if seed in finished:
            continue
        tags = {"stage": "pretrain", "model": name, "seed": str(seed)}
        with nullcontext(run) if seed == config.seed else run.child(f"{name} seed {seed}", tags, {"seed": seed}) as seed_run:
            result = pretrain(config.of_seed(seed), name, trained / "model", seed_run)
        if result is None:
            continue
        if run.id:
            (trained / "run_id").write_text(run.id)
        storage.write_json(trained / "trained.json", {"metrics": result.metrics, "curve": result.curve, "seconds": result.seconds})
    if not processes.rank_zero():
        return None
    results = {seed: read_json(trained / "trained.json") for seed, trained in folders.items()}
    with storage.output(folder) as target:
        for number, trained in enumerate(folders.values(), start=1):
            # copied, not moved: an attempt that is killed before the last line is repeated
            shutil.copytree(trained / "model", target if number == 1 else target / "pretrainings" / str(number))
    for trained in folders.values():
        shutil.rmtree(trained)
    first = results[config.seed]
    costs = {seed: result["metrics"]["cost"] for seed, result in results.items()}
    cost = first["metrics"]["cost"] | {key: sum(of_seed[key] for of_seed in costs.values()) for key in ("tokens", "flops")}
    cost["earlier_seconds"] = sum(
        results[seed]["seconds"] if seed in finished else of_seed["earlier_seconds"] for seed, of_seed in costs.items()
    )
    by_seed = {
        str(seed): {key: result["metrics"][key] for key in METRICS_OF_ALL_SEEDS if key in result["metrics"]}
        for seed, result in results.items()
    }
    return first["metrics"] | {"seeds": by_seed, "cost": cost}, first["curve"]


def _trained_folder(checkpoint: Path) -> Path:
    """Return the folder where the model of a seed is stored until all seeds are trained."""
    return checkpoint.with_name(f"{checkpoint.name}-trained")
