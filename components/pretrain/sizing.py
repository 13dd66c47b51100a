"""What training a model takes, counted without weights: torch's `meta` device has shapes only, so that the largest costs nothing."""

import os
import warnings
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map_only

from components import objectives, params
from components.core import compute
from components.core.flops import counted
from components.models import store
from components.optimizers.adamw.config import AdamW
from components.pretrain.cost import matmul_peak
from components.text.encode import Shard, Split
from components.text.tokenizer import CLS, SEP, SPECIALS

ROWS = 8
LONGEST = 2048
"""Tokens of a row up to which is counted; longer ones in proportion, which is less than their attention takes."""
BEYOND = 2.0**61
"""Parameters: where one matrix has more bytes than torch can count, there are as many at least."""


@dataclass(frozen=True)
class Size:
    """What one training of a model takes."""

    parameters: float
    flops: float
    """Of forward and backward, a token."""
    row_bytes: float
    """What a row keeps for the backward pass in 32 bit. Attention's own matrices are not in it: fused attention keeps none."""

    def memory(self, rows: float, shards: int, precision: str) -> float:
        """Bytes on a device: weights, gradients and Adam's moments, 4 bytes each, over so many shards; and what `rows` keep."""
        return 16 * self.parameters / shards + rows * self.row_bytes / (2 if "bf16" in precision else 1)


class _Vocabulary:
    """In the place of a tokenizer that may not be trained yet: so many pieces, all alike."""

    path = None

    def __init__(self, size: int):
        self.vocab_size = size
        self.byte_lengths = np.broadcast_to(np.int64(4), size)  # one number, however many pieces
        self.starts_word = np.broadcast_to(np.True_, size)
        self.pieces = np.broadcast_to(np.array(b"x"), size)

    def falls_back(self, i: int) -> bool:
        return False

    def characters(self, shortest: int = 1) -> np.ndarray:
        return np.broadcast_to(np.int64(1), (self.vocab_size, max(8, shortest)))


class _Weightless(TorchFunctionMode):
    """Lets ids on the CPU meet weights on `meta`. What is cut out of ids stays on the CPU."""

    fused = False

    def __torch_function__(self, function, types, args=(), kwargs=None):
        given = (args, kwargs or {})
        if function is not Tensor.__getitem__ and any(isinstance(leaf, Tensor) and leaf.is_meta for leaf in tree_leaves(given)):
            given = tree_map_only(Tensor, lambda tensor: tensor.to("meta"), given)
        before, self.fused = self.fused, self.fused or function is scaled_dot_product_attention
        try:
            return function(*given[0], **given[1])
        finally:
            self.fused = before


def _text(length: int) -> Split:
    """Documents of two segments that fill a row together, and leave nothing over for one of a few tokens."""
    segment, documents = max(1, (length - 3) // 2), 4 * ROWS + 4
    first = np.arange(documents) * (2 * segment + 3)
    tokens = np.full(documents * (2 * segment + 3), len(SPECIALS), dtype=np.uint16)
    segments = np.stack([first + 1, first + 1 + segment, first + 2 + segment, first + 2 + 2 * segment], 1).reshape(-1, 2)
    tokens[first], tokens[segments[:, 1]] = CLS, SEP
    return Split((Shard(tokens, segments, np.arange(documents + 1) * 2),))


def size(block: params.Model, vocab_size: int) -> Size:
    """Of a model, whether or not its text and its tokenizer are there. Layers are alike: few and twice as many are counted, the rest
    follows. Few are so many that half of them is a whole number, and that groups of them are as many as the model's."""
    # what has no part in it, so that it is counted once for all variants and seeds of a study
    of_all = {"seed": 1, "encoding": "any", "optimizer": AdamW(learning_rate=1), "budget": params.Budget(steps=1)}
    text = block.model_copy(update=of_all).model_dump_json()
    few = max(2, getattr(block.architecture, "layer_groups", 1))
    one, two = (_counted(text, vocab_size, layers) for layers in (few, 2 * few))
    more = block.architecture.num_layers / few - 1
    return Size(*(a + more * (b - a) for a, b in zip(one, two, strict=True)))


@cache
def _counted(text: str, vocab_size: int, layers: int) -> tuple[float, float, float]:
    """The figures of `Size` with so many layers; the block as text, by which it is remembered."""
    block = params.Model.model_validate_json(text)
    asked = block.objective.row_length(block.architecture.max_length)
    length = min(asked, LONGEST)
    objective = block.objective.with_rows_of(length)
    architecture = block.architecture.model_copy(update={"num_layers": layers, "max_length": length})
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if not mode.fused and storage._cdata not in weights:
            kept[storage._cdata] = storage.nbytes()
        return tensor

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # arrays that are not writable, TF32
        trained = objectives.build(objective, _Vocabulary(len(SPECIALS) + 1 + objective.sentinels(length)))
        batch = trained.batches(_text(length), ROWS, length, 0)[0]
        try:
            with torch.device("meta"):
                model = store.build(architecture, _Vocabulary(vocab_size))
                own = trained.networks(model)
            weights = {parameter.untyped_storage()._cdata for module in (model, *own.values()) for parameter in module.parameters()}
            with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor), counted() as counter, _Weightless() as mode:
                losses, _ = trained.losses(model, batch.rows, None)
                sum(loss for loss, _ in losses.values()).backward()
        except RuntimeError as error:
            if "overflow" not in str(error):
                raise
            return BEYOND, 6 * BEYOND, 0.0
    tokens = batch.counts["tokens"]
    parameters = sum({id(weight): weight.numel() for module in (model, *own.values()) for weight in module.parameters()}.values())
    return parameters, counter.get_total_flops() / tokens, sum(kept.values()) / ROWS * asked / length


@dataclass(frozen=True)
class Machine:
    """Where a training would run."""

    peak: float
    """FLOP/s of a matmul."""
    precision: str
    gpu_memory: int | None
    """Bytes; None on a CPU."""


@cache
def machine(accelerator: str, precision: str, threads: int | None) -> Machine:
    """This machine as a training's settings use it, measured in half a second."""
    gpu = accelerator != "cpu" and torch.cuda.is_available()
    if threads and not gpu:
        torch.set_num_threads(min(threads, os.cpu_count() or 1))
    device = torch.device("cuda" if gpu else "cpu")
    precision = compute.precision(precision, accelerator)
    peak = matmul_peak(device, torch.bfloat16 if "bf16" in precision else torch.float32)
    return Machine(peak, precision, torch.cuda.mem_get_info()[1] if gpu else None)
