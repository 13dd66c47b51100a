"""FLOPs of a training step, and the matmul speed of this machine to hold them against."""

import time

import torch
from torch import nn

from components.flops import counted
from components.objectives import Objective


def training_flops(model: nn.Module, objective: Objective, rows: dict[str, torch.Tensor]) -> int:
    """FLOPs of forward and backward over the rows, on the CPU. Parameters that get no gradient are frozen."""
    with counted() as counter:
        losses, _ = objective.losses(model, rows, None)
        sum(loss for loss, _ in losses.values()).backward()
    for parameter in model.parameters():
        if parameter.grad is None:  # a head that this objective does not use: DDP would wait for its gradient
            parameter.requires_grad_(False)
    model.zero_grad(set_to_none=True)
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
