"""`python -m components.finetune.intermediate NAME`: a model tuned on one task (Phang et al. 2018) -> data/models/<name>, a model like others."""

from pathlib import Path

import torch

from components import models, params, stage, tasks
from components.finetune import kinds, loop, runs
from components.finetune.methods import METHODS
from components.tasks import metrics
from components.tracking import Run


def intermediate(all_params: params.Params, name: str, run: Run) -> dict:
    block = all_params.intermediate[name]
    task, fabric, folder = all_params.tasks[block.task], runs.machine(all_params.finetune), Path("data/models", block.model)
    rows = {
        "train": tasks.subset(tasks.read(Path("data/tasks", block.task), "train"), block.train_examples, all_params.seed),
        "dev": tasks.subset(tasks.read(Path("data/tasks", block.task), "dev"), all_params.finetune.eval_examples, all_params.seed),
    }
    runs.readable(folder, block.recipe)
    torch.manual_seed(block.seed)
    model, tokens = models.load(folder)
    kind = kinds.build(task, block.recipe)
    module = fabric.to_device(METHODS["full"](model, tokens, block.recipe, kind, rows["train"][0].text_b is not None))
    data = {split: kind.encode(part, tokens) for split, part in rows.items()}
    fitted = loop.fit(
        fabric, module, kind, data["train"], block.recipe, block.seed, lambda epoch, loss: print(f"epoch {epoch}: loss {loss:.4f}", flush=True),
        lambda found: metrics.evaluate(task, "dev", rows["dev"], found)[task.metric], data["dev"],
    )  # fmt: skip
    absent = [part for part in model.absent if part != "pooler" or kind.per_token]  # the pooler has now been trained
    with stage.output(Path("data/models", name)) as target:
        models.save(target, model.state_dict(), models.architecture(folder), tokens, absent, [*models.intermediate(folder), block.task])
    run.tag(model=block.model, task=block.task)
    return {
        "model": block.model, "task": block.task, "dev": metrics.evaluate(task, "dev", rows["dev"], fitted.predict(data["dev"])),
        "protocol": metrics.protocol("dev", runs.selection(block.recipe), len(rows["train"]), len(rows["dev"])),
        "cost": {"tokens": fitted.tokens, "flops": fitted.flops, "gpus": int(fabric.device.type == "cuda")},
    }  # fmt: skip


if __name__ == "__main__":
    stage.main("intermediate", intermediate, "intermediate")
