"""All weights tuned on one task before a model meets others (Phang et al. 2018)."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from components import params
from components.core import storage
from components.core.tracking import Run
from components.finetune import loop, tuned
from components.finetune.bench import Bench, readable
from components.models import store
from components.models.contract import LanguageModel
from components.tasks import metrics


def parts(model: LanguageModel, part: str) -> list[Tensor]:
    """The weights of a part of a model as they are now."""
    return [value.clone() for name, value in model.state_dict().items() if name.partition(".")[0] == part]


def derive(all_params: params.Params, name: str, folder: Path, run: Run) -> dict:
    """Tune and write the model with its head, which models derived from it do not take over."""
    block = all_params.derived[name]
    return tune(all_params, block.tasks, block.by, Path("data/models", block.start), folder)


def tune(all_params: params.Params, tasks: Sequence[str], by: params.Tuned, start: Path, folder: Path) -> dict:
    """A model's folder -> another one."""
    [task] = tasks
    bench = Bench.of(all_params, task, {"train": by.examples_of(task), "dev": all_params.finetune.evaluated("dev")})
    readable(start, by.recipe)
    ready = bench.ready(start, by.recipe, by.seed)
    data, its, model = ready.encode(bench.rows), store.about(start), ready.module.model
    drawn = {part: parts(model, part) for part in model.absent}
    fitted = loop.fit(
        bench.fabric, ready.module, ready.kind, data["train"], by.recipe, by.seed,
        lambda epoch, loss: print(f"epoch {epoch}: loss {loss:.4f}", flush=True), bench.judge(), data["dev"],
    )  # fmt: skip
    # a part that no pre-training had touched may have been trained now, as the pooler under the linear head
    absent = [part for part, before in drawn.items() if all(map(torch.equal, before, parts(model, part)))]
    step = {"by": "tuned", "on": task, "method": by.recipe.method, "tokens": fitted.tokens, "flops": fitted.flops}
    with storage.output(folder) as target:
        store.save(target, model.state_dict(), its.architecture, ready.tokens, absent, [*its.lineage, step])
        tuned.save(target, ready, task, bench.task, by.recipe, bench.pair)
    return {
        "task": task, "dev": metrics.evaluate(bench.task, "dev", bench.rows["dev"], fitted.predict(data["dev"]).values),
        "protocol": bench.protocol(by.recipe, "dev"), "examples": {task: fitted.epochs * len(bench.rows["train"])},
        "cost": {"tokens": fitted.tokens, "flops": fitted.flops, "gpus": int(bench.on_gpu)},
    }  # fmt: skip
