"""What a device that is not the CPU is asked for, noted on `meta`, where a tensor has a shape and no values.

There a tensor of another device in the same operation is an error, as on a GPU, and so is all that would wait for a GPU: reading a
value (`.item()`, `if tensor`), and shapes that depend on values (boolean indexing, `nonzero`).
"""

from collections.abc import Callable

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Watched(TorchDispatchMode):
    """Notes operations that mix the device with the CPU, and float64 on the device."""

    def __init__(self):
        super().__init__()
        self.noted: set[str] = set()

    def __torch_dispatch__(self, function: Callable, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        given = [one for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
        made = [one for one in tree_leaves(result) if isinstance(one, torch.Tensor)]
        # a scalar of the CPU goes along with the call; a larger tensor is copied, and the host waits
        if any(one.is_meta for one in given) and any(not one.is_meta and one.ndim for one in given):
            self.noted.add(f"{function}: a tensor of the CPU beside one of the device")
        if any(one.is_meta and one.dtype == torch.float64 for one in made):
            self.noted.add(f"{function}: float64 on the device")
        return result
