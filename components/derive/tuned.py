"""All weights tuned on one task before a model meets others (Phang et al. 2018)."""

from pathlib import Path

from components import params, stage
from components.finetune import loop
from components.finetune.bench import Bench, readable
from components.models import store
from components.tasks import metrics
from components.tracking import Run


def derive(all_params: params.Params, name: str, folder: Path, run: Run) -> dict:
    """Tune and write the model; its head is thrown away."""
    block = all_params.derived[name]
    start, by, task = Path("data/models", block.start), block.by, block.on.partition("/")[2]
    bench = Bench.of(all_params, task, {"train": by.train_examples, "dev": all_params.finetune.eval_examples})
    readable(start, by.recipe)
    ready = bench.ready(start, by.recipe, by.seed)
    data, its = ready.encode(bench.rows), store.about(start)
    fitted = loop.fit(
        bench.fabric, ready.module, ready.kind, data["train"], by.recipe, by.seed,
        lambda epoch, loss: print(f"epoch {epoch}: loss {loss:.4f}", flush=True), bench.judge(), data["dev"],
    )  # fmt: skip
    model = ready.module.model
    absent = [part for part in model.absent if part != "pooler" or ready.kind.per_token]  # the pooler has now been trained
    step = {"by": "tuned", "on": task, "method": by.recipe.method, "tokens": fitted.tokens, "flops": fitted.flops}
    with stage.output(folder) as target:
        store.save(target, model.state_dict(), its.architecture, ready.tokens, absent, [*its.lineage, step])
    return {
        "task": task, "dev": metrics.evaluate(bench.task, "dev", bench.rows["dev"], fitted.predict(data["dev"])),
        "protocol": bench.protocol(by.recipe, "dev"), "cost": {"tokens": fitted.tokens, "flops": fitted.flops, "gpus": int(bench.on_gpu)},
    }  # fmt: skip
