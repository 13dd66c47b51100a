"""A model that is pre-trained with several seeds: the first in `data/models/<name>`, the others in `pretrainings/<number>` below it.

What has been trained waits beside the saves until all are, so that a killed stage trains no seed twice.
"""

import shutil
from contextlib import nullcontext
from pathlib import Path

from components.core import processes, storage
from components.core.tracking import Run
from components.params import Model
from components.pretrain.training import checkpoint_folder, pretrain

BY_SEED = ("loss", "perplexity", "bits_per_byte")
"""Figures of a pre-training that are kept of every seed."""


def previous_run(block: Model, name: str) -> str | None:
    """The ledger's run of a killed attempt."""
    saves = [checkpoint_folder(block.of_seed(seed), name) for seed in block.seeds]
    noted = [place / "run_id" for save in saves for place in (_trained(save), save)]
    return next((file.read_text() for file in noted if file.exists()), None)


def pretrain_each(block: Model, name: str, folder: Path, run: Run) -> tuple[dict, list[dict[str, float]]] | None:
    """Pre-train with every seed; the figures and the curve of the first one, with the cost of all. None on a rank that is not the first."""
    trained = {seed: _trained(checkpoint_folder(block.of_seed(seed), name)) for seed in block.seeds}
    # looked up before the first training: a rank that looked later would see what another one has written by then
    waiting = {seed for seed, place in trained.items() if (place / "trained.json").exists()}
    for seed, place in trained.items():
        if processes.rank_zero():
            print(f"seed {seed}{': trained by the attempt before' if seed in waiting else ''}", flush=True)
        if seed in waiting:
            continue
        about = {"stage": "pretrain", "model": name, "seed": str(seed)}
        with nullcontext(run) if seed == block.seed else run.child(f"{name} seed {seed}", about, {"seed": seed}) as own:
            made = pretrain(block.of_seed(seed), name, place / "model", own)
        if made is None:
            continue
        if run.id:
            (place / "run_id").write_text(run.id)
        storage.write_json(place / "trained.json", {"metrics": made.metrics, "curve": made.curve, "seconds": made.seconds})
    if not processes.rank_zero():
        return None
    figures = {seed: storage.read_json(place / "trained.json") for seed, place in trained.items()}
    with storage.output(folder) as target:
        for number, place in enumerate(trained.values(), start=1):
            # a copy: whoever is killed before the last line does it once more
            shutil.copytree(place / "model", target if number == 1 else target / "pretrainings" / str(number))
    for place in trained.values():
        shutil.rmtree(place)
    first = figures[block.seed]
    costs = {seed: own["metrics"]["cost"] for seed, own in figures.items()}
    cost = first["metrics"]["cost"] | {key: sum(own[key] for own in costs.values()) for key in ("tokens", "flops")}
    cost["earlier_seconds"] = sum(figures[seed]["seconds"] if seed in waiting else own["earlier_seconds"] for seed, own in costs.items())
    by_seed = {str(seed): {key: own["metrics"][key] for key in BY_SEED if key in own["metrics"]} for seed, own in figures.items()}
    return first["metrics"] | {"seeds": by_seed, "cost": cost}, first["curve"]


def _trained(save: Path) -> Path:
    """Where the model of a seed waits for the others."""
    return save.with_name(f"{save.name}-trained")
