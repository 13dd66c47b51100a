"""The process's use of CPU and memory, set once before training."""

import ctypes
import logging
import os
import sys
import warnings
from pathlib import Path

import torch

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of mallopt(3)


def prepare(threads: int | None) -> None:
    """Fix torch's CPU threads, flush denormals, and keep freed memory in the process.

    By default glibc gives large tensors back to the system when they are freed, and the next step pays for fresh, zeroed
    pages: a 4096 x 4096 softmax with its backward took 430 ms so, and 200 ms with this (one core, bf16 autocast).
    Numbers too small for a full mantissa count as 0: a CPU takes a hundred times as long for a sum with them, and a model that has
    got stuck is full of them.
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


def precision(wanted: str, accelerator: str) -> str:
    """`auto` becomes bf16-mixed where the hardware multiplies bf16, a CPU included, else 32-true."""
    if wanted != "auto":
        return wanted
    if accelerator != "cpu" and torch.cuda.is_available():
        return "bf16-mixed" if torch.cuda.is_bf16_supported() else "32-true"
    flags = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    return "bf16-mixed" if "avx512_bf16" in flags or "amx_bf16" in flags else "32-true"
