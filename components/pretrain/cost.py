"""FLOPs of a training step, and the matmul speed of this machine to hold them against."""

import time
from collections.abc import Collection, Iterable

import torch
from torch import nn

from components.core.errors import SesameError
from components.core.flops import counted
from components.models.contract import LanguageModel
from components.objectives.contract import Objective


def training_flops(
    model: LanguageModel, objective: Objective, rows: dict[str, torch.Tensor], untrained: Collection[str] = (),
    networks: Iterable[nn.Module] = (),
) -> int:  # fmt: skip
    """FLOPs of forward and backward over the rows, on the CPU. Freezes the parts that the objective leaves alone. `networks` are the
    objective's own: what the count leaves on them is taken away, too.

    Raises SesameError where another one gets no gradient: it would silently never train, and DDP would wait for it.
    """
    with counted() as counter:
        losses, _ = objective.losses(model, rows, None)
        sum(loss for loss, _ in losses.values()).backward()
    for name, parameter in model.named_parameters():
        if name.partition(".")[0] in untrained:
            parameter.requires_grad_(False)
        elif parameter.grad is None:
            raise SesameError(
                f"{type(objective).__name__} gives no gradient to {name}, and does not name its part among those it leaves alone"
            )
    for module in (model, *networks):
        module.zero_grad(set_to_none=True)  # or the first step would learn from what was only counted
    return counter.get_total_flops()


def matmul_peak(device: torch.device, dtype: torch.dtype, seconds: float = 0.5) -> float:
    """FLOP/s of a square matmul in this precision on this device, the best of the rounds that fit the time."""
    size = 1024 if device.type == "cpu" else 8192
    a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    best, end = 0.0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        started = time.perf_counter()
        a @ b
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        best = max(best, 2 * size**3 / (time.perf_counter() - started))
    return best
