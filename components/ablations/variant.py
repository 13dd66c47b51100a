"""`python -m components.ablations.variant NAME`: pre-train a variant once a seed -> data/variants/<study>/<name>/<seed>/.

A seed that is done is kept aside until all are, so that a killed stage goes on with the next one.
"""

import shutil
from pathlib import Path

from components import stage
from components.params import Params, varied
from components.pretrain.training import checkpoint_folder, pretrain, write_curve
from components.tasks.metrics import summary
from components.tracking import Run

DONE = stage.STATE / "variants"


def train(all_params: Params, name: str, run: Run) -> dict:
    block = all_params.variants[name]
    study, folders, earlier = all_params.ablations[block.study], {}, 0.0
    run.tag(study=block.study, variant=name, model=block.model)
    for seed in study.seeds:
        model = varied(all_params.models, study, block, seed)
        label = f"{name}-{seed}"
        folders[seed] = DONE / checkpoint_folder(model, label, study.checkpoints).name
        if (folders[seed] / "figures.json").exists():
            earlier += stage.read_json(folders[seed] / "figures.json")["seconds"]
            print(f"seed {seed}: done before", flush=True)
            continue
        tags = {"stage": "variant", "study": block.study, "variant": name, "model": block.model, "seed": str(seed)}
        with run.child(label, tags, model.model_dump(mode="json")) as child:
            trained = pretrain(model, label, folders[seed], child, study.checkpoints)
            if trained is None:
                continue
            write_curve(folders[seed] / "curve.csv", trained.curve)
            spent = trained.metrics.pop("cost")
            earlier += spent["earlier_seconds"]
            figures = trained.metrics | {"seconds": trained.seconds, "flops": spent["flops"], "gpus": spent["gpus"]}
            stage.write_json(folders[seed] / "figures.json", figures)
            child.log(figures)
    if not stage.rank_zero():
        return {}
    with stage.output(Path("data/variants", block.study, name)) as target:
        for seed, folder in folders.items():
            shutil.copytree(folder, target / str(seed))
    for left in (*DONE.glob(f"{name}-[0-9]*"), *(stage.STATE / "checkpoints").glob(f"{name}-[0-9]*")):  # also of attempts with other params
        shutil.rmtree(left)
    found = [stage.read_json(Path("data/variants", block.study, name, str(seed), "figures.json")) for seed in study.seeds]
    keys = ("loss", "perplexity", "bits_per_byte", "seconds", "tokens", "flops", "parameters", "tokens_per_second")
    return summary([{key: figures[key] for key in keys} for figures in found]) | {
        "cost": {
            "tokens": sum(figures["tokens"] for figures in found), "flops": sum(figures["flops"] for figures in found),
            "gpus": max(figures["gpus"] for figures in found), "earlier_seconds": earlier,
        },
    }  # fmt: skip


def metrics_file(all_params: Params, name: str) -> Path:
    return Path("data/variants", all_params.variants[name].study, name, "metrics.json")


if __name__ == "__main__":
    stage.main("variant", train, "variants", metrics_file=metrics_file)
