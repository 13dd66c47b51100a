"""Fine-tuning on one task before a model is fine-tuned on others (Phang et al. 2018)."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from components import params
from components.core import storage
from components.core.tracking import Run
from components.finetune import loop, tuned
from components.finetune.task_setup import TaskSetup, check_max_length
from components.models import store
from components.models.contract import LanguageModel
from components.tasks import metrics


def module_weights(model: LanguageModel, name: str) -> list[Tensor]:
    """Copies of the weights of a module of a model."""
    return [value.clone() for key, value in model.state_dict().items() if key.partition(".")[0] == name]


def derive(all_params: params.Params, name: str, folder: Path, run: Run) -> dict:
    """Fine-tune and save the model with its head, which models derived from it do not take over."""
    block = all_params.derived[name]
    return tune(all_params, block.tasks, block.by, Path("data/models", block.start), folder)


def tune(all_params: params.Params, tasks: Sequence[str], by: params.Tuned, start: Path, folder: Path) -> dict:
    """Fine-tune the model of a folder on a task and save it."""
    [task] = tasks
    setup = TaskSetup.load(all_params, task, {"train": by.examples_of(task), "dev": all_params.finetune.evaluated("dev")})
    check_max_length(start, by.recipe)
    prepared = setup.prepare(start, by.recipe, by.seed)
    data, about, model = prepared.encode(setup.examples), store.about(start), prepared.module.model
    drawn = {name: module_weights(model, name) for name in model.absent}
    fitted = loop.fit(
        setup.fabric, prepared.module, prepared.kind, data["train"], by.recipe, by.seed,
        lambda epoch, loss: print(f"epoch {epoch}: loss {loss:.4f}", flush=True), setup.dev_score(), data["dev"],
    )  # fmt: skip
    # a module without pre-trained weights may be trained now, as the pooler below the linear head
    absent = [name for name, before in drawn.items() if all(map(torch.equal, before, module_weights(model, name)))]
    step = {"by": "tuned", "on": task, "method": by.recipe.method, "tokens": fitted.tokens, "flops": fitted.flops}
    with storage.output(folder) as target:
        store.save(target, model.state_dict(), about.architecture, prepared.tokens, absent, [*about.lineage, step])
        tuned.save(target, prepared, task, setup.task, by.recipe, setup.pair)
    return {
        "task": task, "dev": metrics.evaluate(setup.task, "dev", setup.examples["dev"], fitted.predict(data["dev"]).values),
        "protocol": setup.protocol(by.recipe, "dev", each_seed_draws=False),
        "examples": {task: fitted.epochs * len(setup.examples["train"])},
        "cost": {"tokens": fitted.tokens, "flops": fitted.flops, "gpus": int(setup.on_gpu)},
    }  # fmt: skip
