"""How busy a GPU is kept: `python -m tests.benchmarks.accelerator`, some five minutes on one that multiplies bf16.

BERT-base over 512 tokens and GPT-2 small over 1024, bf16, plain and compiled, through Lightning as a stage trains them: tokens a second,
the share of the matmul peak measured beside it, how often the host waited for the device in 20 steps without a log, and how long the data
alone would take. It needs no network, and no package index: what the core imports is enough. `--device cpu --layers 2 --hidden 128
--rows 8 --steps 12` tries it where there is no GPU.
"""

import argparse
import itertools
import time
import warnings

import torch
from lightning.pytorch.callbacks import Callback

from components import objectives, params
from components.core import compute
from components.core.tracking import Run
from components.models import store
from components.pretrain.cost import matmul_peak, training_flops
from components.pretrain.data import PretrainData, StepLoader
from components.pretrain.module import WARM_UP, Pretraining
from components.pretrain.trainer import lightning_trainer
from tests.benchmarks.made import PIECES, made_text
from tests.benchmarks.record import record

WATCHED = 20
"""StepLoader whose waits are counted."""


class Waits(Callback):
    """Counts how often the host waits for a GPU between two steps."""

    def __init__(self, first: int):
        self.first, self.count = first, 0

    def on_train_batch_start(self, trainer, module, batch, index: int) -> None:
        if index == self.first:
            self.caught = warnings.catch_warnings(record=True)
            self.seen = self.caught.__enter__()
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")

    def on_train_batch_end(self, trainer, module, outputs, batch, index: int) -> None:
        if index == self.first + WATCHED - 1:
            torch.cuda.set_sync_debug_mode("default")
            self.count = sum("synchroniz" in str(warning.message) for warning in self.seen)
            self.caught.__exit__(None, None, None)


def block(name: str, length: int, given: argparse.Namespace, compiled: bool) -> params.Model:
    sizes = {
        "num_layers": given.layers,
        "hidden_size": given.hidden,
        "num_heads": given.hidden // 64,
        "intermediate_size": 4 * given.hidden,
    }
    objective = {"name": "mlm", "next_sentence": False} if name == "encoder" else {"name": "clm", "isolate_documents": False}
    return params.Model.model_validate({
        "encoding": "none", "architecture": {"name": name, **sizes}, "objective": objective,
        "optimizer": {"learning_rate": 1e-4}, "budget": {"steps": given.steps}, "batch_size": given.tensors * 512 // length,
        "trainer": {"compile": compiled, "precision": "bf16-mixed"},
        "run": {"accelerator": "gpu" if given.device == "cuda" else "cpu", "log_every": 10**6, "workers": given.workers},
    })  # fmt: skip


def measure(name: str, length: int, given: argparse.Namespace, compiled: bool, peak: float) -> None:
    own = block(name, length, given, compiled)
    objective = objectives.build(own.objective, PIECES)
    text = made_text(max(2_000_000, 2 * given.steps * own.batch_size * length))
    train = objective.batches(text, own.batch_size, length, seed=1)
    model = store.build(own.architecture, PIECES)
    few = objective.batches(text, 1, length, seed=1)[0]
    flops = training_flops(model, objective, few.tensors, objective.untrained(model)) / few.counts["tokens"]
    if compiled:
        model.compile(fullgraph=True)
    module, waits = Pretraining(own, model, {}, objective, given.steps, Run(None)), Waits(WARM_UP + 2)
    module.shown = torch.inf  # no line of progress, for which it would wait
    trainer = lightning_trainer(own, given.steps, [waits] if given.device == "cuda" else [])
    trainer.limit_val_batches = 0
    trainer.fit(module, PretrainData(train, train, 1, 1, given.workers))
    module.read()
    speed = module.timed_tokens / module.timed_seconds
    label = f"{name} {given.layers} x {given.hidden}, {own.batch_size} x {length}{', compiled' if compiled else ''}, {given.device}"
    record(f"accelerator, {label}", speed * flops / 1e12, peak / 1e12, "TFLOP/s", "the matmul peak")
    started = time.perf_counter()
    steps = StepLoader(objective.batches(text, own.batch_size, length, seed=1), 0, given.steps, 1, slice(0, 1), 0, pinned=False)
    tokens = sum(counts["tokens"] for _, counts in itertools.islice(steps, given.steps))
    alone = tokens / (time.perf_counter() - started)
    print(
        f"  {speed:,.0f} tokens/s; {waits.count} waits in {WATCHED} steps; a core draws {alone:,.0f} tokens/s, {alone / speed:.1f} x that"
    )


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    for name, value in (("layers", 12), ("hidden", 768), ("rows", 64), ("steps", 60)):
        asked.add_argument(f"--{name}", type=int, default=value)
    asked.add_argument("--workers", type=int, default=None)
    given = asked.parse_args()
    compute.prepare(None)
    peak = matmul_peak(torch.device(given.device), torch.bfloat16, 3.0)
    for (name, length), compiled in itertools.product((("encoder", 512), ("decoder", 1024)), (False, True)):
        measure(name, length, given, compiled, peak)


if __name__ == "__main__":
    main()
