"""The roofline prediction beside real steps: `python -m tests.benchmarks.roofline`, some two minutes on one core.

BERT-base over 512 tokens, GPT-2 small over 1024 and the default's size, in 32 bits and in bf16 where the CPU multiplies it. The speeds of
products, memory and starts are measured first. Seconds are those of the process, so that other work on the machine does not count.
"""

import itertools
import time

import torch

from components import objectives, optimizers, params
from components.core import compute
from components.models import store
from components.pretrain import roofline
from components.pretrain.cost import matmul_peak
from tests.benchmarks.made import PIECES, made_text
from tests.benchmarks.record import record

SIZES = {  # family, layers, width, length, rows
    "BERT-base, 2 x 512": ("encoder", 12, 768, 512, 2),
    "GPT-2 small, 1 x 1024": ("decoder", 12, 768, 1024, 1),
    "the default's GPT, 16 x 128": ("decoder", 2, 128, 128, 16),
}
STEPS = 3


def block(family: str, layers: int, width: int, length: int, rows: int) -> params.Model:
    sizes = {
        "num_layers": layers,
        "hidden_size": width,
        "num_heads": width // 64,
        "intermediate_size": 4 * width,
        "max_length": length,
    }
    sizes["dropout"] = 0.0  # a CPU drops weights of attention one by one, a GPU within its kernel
    objective = (
        {"name": "mlm", "next_sentence": False} if family == "encoder" else {"name": "clm", "isolate_documents": False}
    )
    return params.Model.model_validate({
        "encoding": "none", "architecture": {"name": family, **sizes}, "objective": objective,
        "optimizer": {"learning_rate": 1e-4}, "budget": {"steps": STEPS}, "batch_size": rows,
    })  # fmt: skip


def device(dtype: torch.dtype) -> roofline.Device:
    """Measure this CPU's speeds with one thread."""
    source, small = torch.randn(2**25), torch.randn(4)
    target, copies, starts = torch.empty_like(source), [], 10_000
    for _ in range(8):
        began = time.process_time()
        target.copy_(source)
        copies.append(time.process_time() - began)
    began = time.process_time()
    for _ in range(starts):
        small.add_(1.0)
    launch = (time.process_time() - began) / starts
    peak = matmul_peak(torch.device("cpu"), dtype, 2.0)
    return roofline.Device(peak, 2 * source.nbytes / min(copies), launch, queued=False)


def measured(config: params.Model, dtype: torch.dtype) -> float:
    """Seconds of a step: forward, backward and update; the best of a few."""
    objective = objectives.build(config.objective, PIECES)
    batch = objective.batches(made_text(200_000), config.batch_size, config.architecture.max_length, seed=1)[0]
    model = store.build(config.architecture, PIECES).train()
    optimizer, seconds = optimizers.build(config.optimizer, model, model.stacked(), lambda _: 0), []
    for _ in range(STEPS):
        began = time.process_time()
        with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
            losses, _ = objective.losses(model, batch.tensors, None)
            loss = sum(loss for loss, _ in losses.values())
        loss.backward()
        optimizer.step()
        model.zero_grad(set_to_none=True)
        seconds.append(time.process_time() - began)
    return min(seconds)


def main() -> None:
    compute.prepare(1)
    low = compute.precision("auto", "cpu") == "bf16-mixed"
    for dtype, (name, sizes) in itertools.product(
        (torch.float32, torch.bfloat16) if low else (torch.float32,), SIZES.items()
    ):
        config, before = block(*sizes), device(dtype)
        seconds, after = measured(config, dtype), device(dtype)
        here = roofline.Device(
            max(before[0], after[0]), max(before[1], after[1]), min(before[2], after[2]), queued=False
        )
        times, tokens = roofline.step(config, PIECES.vocab_size, config.batch_size, 1, dtype != torch.float32, here)
        print(
            f"\n{name}, {dtype}: products {times.products:.3f} s, memory {times.memory:.3f} s, starts {times.starts:.4f} s",
            end="",
        )
        speed, predicted = tokens / seconds, tokens / times.total(here)
        record(f"roofline, {name}, {dtype}", speed, predicted, "tokens/s", "the prediction")


if __name__ == "__main__":
    main()
