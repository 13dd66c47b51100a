"""FLOPs of a training step, and the peak matmul speed of this machine, with which the speed of a training is compared."""

import time
from collections.abc import Collection, Iterable

import torch
from torch import nn

from components.core.errors import SesameError
from components.core.flops import flop_counter
from components.models.contract import LanguageModel
from components.objectives.contract import Objective


def training_flops(
    model: LanguageModel, objective: Objective, batch: dict[str, torch.Tensor], untrained: Collection[str] = (),
    networks: Iterable[nn.Module] = (),
) -> int:  # fmt: skip
    """Count the FLOPs of forward and backward over a batch, on the CPU; freeze the modules named in `untrained`.

    `networks` are the auxiliary networks of the objective, whose gradients are cleared as well. Raise SesameError if any
    other parameter gets no gradient: it would silently never train, and DDP would wait for it.
    """
    with flop_counter() as counter:
        losses, _ = objective.losses(model, batch, None)
        sum(loss for loss, _ in losses.values()).backward()
    for name, parameter in model.named_parameters():
        if name.partition(".")[0] in untrained:
            parameter.requires_grad_(False)
        elif parameter.grad is None:
            raise SesameError(f"{type(objective).__name__} gives no gradient to {name}; name its module in `untrained`")
    for module in (model, *networks):
        module.zero_grad(set_to_none=True)  # or the first step would use the gradients of this count
    return counter.get_total_flops()


def matmul_peak(device: torch.device, dtype: torch.dtype, seconds: float = 0.5) -> float:
    """Return the FLOP/s of a square matmul on this device, the best of the repetitions that fit in `seconds`."""
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
