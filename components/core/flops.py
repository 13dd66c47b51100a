"""FLOPs counted per operation (2 per multiply-add)."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode


@contextmanager
def flop_counter() -> Iterator[FlopCounterMode]:
    """Count the FLOPs of the operations inside. Fused attention and the LSTMs of oneDNN and cuDNN, which torch does not count, are off."""
    with (
        FlopCounterMode(display=False) as counter,
        sdpa_kernel(SDPBackend.MATH), torch.backends.mkldnn.flags(enabled=False), torch.backends.cudnn.flags(enabled=False),
    ):  # fmt: skip
        yield counter
