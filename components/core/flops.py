"""FLOPs counted operation by operation (2 per multiply-add)."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode


@contextmanager
def counted() -> Iterator[FlopCounterMode]:
    """Counts what runs inside. The counter is blind to fused attention and to oneDNN's and cuDNN's LSTM, so plain ones are run."""
    with (
        FlopCounterMode(display=False) as counter,
        sdpa_kernel(SDPBackend.MATH), torch.backends.mkldnn.flags(enabled=False), torch.backends.cudnn.flags(enabled=False),
    ):  # fmt: skip
        yield counter
