"""`python -m components.ablations.transfer NAME`: data/variants/<study>/<name> -> data/studies/<study>/<name>/<task>/<checkpoint>/predictions.jsonl.

Each seed's model is fine-tuned once, with the same seed, on every task of the study; so is each checkpoint kept on the way.
"""

from pathlib import Path

from components import stage
from components.finetune import runs
from components.params import Params, tuned
from components.tracking import Run

LAST = "last"
"""The model at the end of its budget; others are named by the tokens they had read."""


def transfer(all_params: Params, name: str, run: Run) -> dict:
    block = all_params.variants[name]
    study, source = all_params.ablations[block.study], Path("data/variants", block.study, name)
    recipe, found = tuned(study, block), {}
    with stage.output(Path("data/studies", block.study, name)) as target:
        for checkpoint in (*map(str, study.checkpoints), LAST):
            folders = {seed: source / str(seed) / ("" if checkpoint == LAST else checkpoint) for seed in study.seeds}
            tags = {"stage": "transfer", "study": block.study, "variant": name, "model": block.model, "checkpoint": checkpoint}
            for task in study.tasks:
                print(f"{task}, {checkpoint} checkpoint", flush=True)
                scores = target / task / checkpoint
                label = name if checkpoint == LAST else f"{name} at {checkpoint}"
                found.setdefault(task, {})[checkpoint] = runs.compare(all_params, label, folders, task, recipe, ["pretrained"], scores, run, tags)
    run.tag(study=block.study, variant=name, model=block.model)
    parts = [part for points in found.values() for part in points.values()]
    spent = [part["cost"] for part in parts]
    return {"tasks": found, "cost": {key: sum(cost[key] for cost in spent) for key in ("tokens", "flops")} | {"gpus": max(cost["gpus"] for cost in spent)}}


def metrics_file(all_params: Params, name: str) -> Path:
    return Path("data/studies", all_params.variants[name].study, name, "metrics.json")


if __name__ == "__main__":
    stage.main("transfer", transfer, "variants", metrics_file=metrics_file)
