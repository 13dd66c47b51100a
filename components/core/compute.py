"""Threads, memory and precision of the process, set once before training."""

import ctypes
import logging
import os
import sys
import warnings
from pathlib import Path

import torch

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of mallopt(3)


def prepare(threads: int | None) -> None:
    """Set torch's CPU threads, flush denormals, and keep freed memory in the process.

    By default glibc returns the memory of large tensors to the system when they are freed, and the next step needs new, zeroed
    pages: a 4096 x 4096 softmax with its backward pass took 430 ms, and takes 200 ms with this (one core, bf16 autocast).
    Denormal numbers are set to 0: a CPU takes a hundred times as long for a sum with them, and a diverged model is full of them.
    """
    torch.set_flush_denormal(True)
    if threads:
        if threads > (cores := os.cpu_count() or threads):
            print(f"threads: {threads} on a machine of {cores} cores, which is slower than {cores}", file=sys.stderr, flush=True)
        torch.set_num_threads(threads)
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "mallopt"):
        libc.mallopt(M_MMAP_MAX, 0)
        libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
    logging.getLogger("lightning.fabric").setLevel(logging.WARNING)
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", message=".*TF32 acceleration on top of oneDNN.*")
    warnings.filterwarnings("ignore", message=".*LSTM with projections is not supported with oneDNN.*")


def precision(setting: str, accelerator: str) -> str:
    """Resolve `auto` to bf16-mixed if the hardware, also a CPU, multiplies bf16, else to 32-true."""
    if setting != "auto":
        return setting
    if accelerator != "cpu" and torch.cuda.is_available():
        return "bf16-mixed" if torch.cuda.is_bf16_supported() else "32-true"
    flags = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    return "bf16-mixed" if "avx512_bf16" in flags or "amx_bf16" in flags else "32-true"


def full_precision(x: torch.Tensor) -> torch.autocast:
    """Return a block whose products are in 32 bits, whatever the training's precision.

    The device `meta` has no autocast, and takes the CPU's.
    """
    return torch.autocast("cuda" if x.is_cuda else "cpu", enabled=False)
