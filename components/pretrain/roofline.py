"""How long a training takes on a device that is not here, by the roofline model (Williams et al. 2009).

A step is run on torch's `meta` device, where tensors have shapes only, and each of its operations is recorded. An operation takes the time
of its FLOPs at the device's speed of products, or that of its bytes at the speed of its memory, whichever is longer; a product of large
matrices is bound by the first, all else by the second. A GPU needs the host to start each operation: of a small model that takes longer
than all of them. `python -m tests.benchmarks.roofline` compares the prediction with real steps on this machine.
"""

import warnings
from collections.abc import Sequence
from functools import cache
from itertools import groupby
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.flop_counter import flop_registry

from components import optimizers, params
from components.models.contract import LanguageModel
from components.objectives.examples.batches import exact_widths
from components.pretrain import sizing

NO_WORK = {"aten::detach", "aten::empty", "aten::empty_like", "aten::_unsafe_view"}
"""Operations that are no views, and read and write nothing either."""
LOOKUPS = {"aten::embedding", "aten::index_select", "aten::gather", "aten::index"}
"""Operations that read only the rows that they write."""
UPDATE_BYTES = 28
"""Of a fused AdamW, for each weight: weight, gradient and both moments are read, all but the gradient are written, in 32 bits."""


class Device(NamedTuple):
    """The speeds of a device."""

    flops: float
    """FLOP/s of products of large matrices."""
    bandwidth: float
    """Bytes that its memory reads and writes in a second."""
    launch: float
    """Seconds to start an operation."""
    queued: bool = True
    """Whether operations are started while earlier ones run, as on a GPU."""


class Operation(NamedTuple):
    """What one operation needs."""

    name: str
    flops: float
    reads: dict[int, float]
    """Memory -> its bytes."""
    writes: dict[int, float]

    @property
    def bytes(self) -> float:
        return sum(self.reads.values()) + sum(self.writes.values())


class Recording(NamedTuple):
    """What a micro-batch and an update of the weights do."""

    forward: list[Operation]
    both: list[Operation]
    """Of the forward and the backward pass."""
    update: list[Operation]
    tokens: float
    """Of the micro-batch."""


class Times(NamedTuple):
    """The seconds of a step by what bounds its operations, and those of starting them."""

    products: float
    """Operations that are bound by FLOPs."""
    memory: float
    """Operations that are bound by the memory."""
    starts: float
    """The starts of all operations."""

    @property
    def limit(self) -> str:
        """What takes most of the time."""
        if self.starts > self.products + self.memory:
            return "starts of kernels"
        return "products" if self.products > self.memory else "memory"

    def total(self, device: Device) -> float:
        busy = self.products + self.memory
        return max(busy, self.starts) if device.queued else busy + self.starts


class _Recorder(TorchDispatchMode):
    """Records all operations."""

    def __init__(self):
        super().__init__()
        self.operations: list[Operation] = []
        self.kept: list[object] = []  # or a later tensor would take the number of a memory that is free again

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        result, name = operation(*args, **kwargs), operation._schema.name
        if not operation.is_view and name not in NO_WORK:
            packet = operation._overloadpacket
            flops = flop_registry[packet](*args, **kwargs, out_val=result) if packet in flop_registry else 0
            reads, writes = self._memory((args, kwargs)), self._memory(result)
            if name in LOOKUPS:
                reads = dict.fromkeys(reads, sum(writes.values()) // len(reads))
            self.operations.append(Operation(name, flops, reads, writes))
        return result

    def _memory(self, value: object) -> dict[int, int]:
        """Bytes of each memory. Several tensors may be parts of one; an expanded tensor has fewer bytes than its shape says."""
        found: dict[int, int] = {}
        for tensor in tree_leaves(value):
            if isinstance(tensor, Tensor):
                storage = tensor.untyped_storage()
                self.kept.append(storage)
                size = found.get(storage._cdata, 0) + tensor.numel() * tensor.element_size()
                found[storage._cdata] = min(size, storage.nbytes())
        return found


class _Autocast(TorchFunctionMode):
    """Casts as autocast does, which `meta` does not have, and attends by the fused kernels of a GPU."""

    PRODUCTS = (
        F.linear, F.conv1d, torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.bmm, torch.einsum, torch.lstm, torch.gru,
    )  # fmt: skip
    FULL_PRECISION = (
        F.layer_norm, F.rms_norm, F.softmax, F.log_softmax, F.cross_entropy, Tensor.softmax, Tensor.log_softmax,
    )  # fmt: skip

    def __init__(self, low_precision: bool):
        super().__init__()
        self.low_precision = low_precision

    def __torch_function__(self, function, types, args=(), kwargs=None):
        attends = function is F.scaled_dot_product_attention
        kwargs = kwargs or {}
        if self.low_precision and (attends or function in self.PRODUCTS):
            args, kwargs = _cast((args, kwargs), torch.bfloat16)
        elif self.low_precision and function in self.FULL_PRECISION:
            args, kwargs = _cast((args, kwargs), torch.float32)
        return _fused_attention(*args, **kwargs) if attends else function(*args, **kwargs)


def step(
    config: params.Model, vocab_size: int, rows: int, micro_batches: int, low_precision: bool, device: Device
) -> tuple[Times, float]:  # fmt: skip
    """Predict the times of a step on one device, which reads so many micro-batches of `rows` rows and updates the weights once; and count
    its tokens. `low_precision`: products in bf16.

    Layers are alike: as in `sizing.size`, a few and twice as many are recorded, and the rest is extrapolated. So are rows of more than
    `sizing.MAX_LENGTH` tokens.
    """
    text = config.model_copy(update={"seed": 1, "encoding": "any", "budget": params.Budget(steps=1)}).model_dump_json()
    few = sizing.few_layers(config)
    more = config.architecture.num_layers / few - 1
    full_length = config.objective.row_length(config.architecture.max_length)
    length = min(full_length, sizing.MAX_LENGTH)

    def recorded(layers: int) -> Recording:
        """The recording of so many layers, for rows of the full length."""
        whole = _recorded(text, vocab_size, layers, length, rows, low_precision)
        if full_length == length:
            return whole
        lengths = [length // 4, length // 2, length]
        shorter = [_recorded(text, vocab_size, layers, each, rows, low_precision) for each in lengths[:2]]
        forward = longer([*(each.forward for each in shorter), whole.forward], lengths, full_length)
        both = longer([*(each.both for each in shorter), whole.both], lengths, full_length)
        return Recording(forward, both, whole.update, whole.tokens * full_length / length)

    def of_all_layers(one: Sequence[Operation], two: Sequence[Operation]) -> Times:
        return Times(*(a + more * (b - a) for a, b in zip(times(one, device), times(two, device), strict=True)))

    one, two = recorded(few), recorded(2 * few)
    micro_batch, update = of_all_layers(one.both, two.both), of_all_layers(one.update, two.update)
    if config.trainer.recompute:  # the forward pass of the layers once more
        forward, deeper = times(one.forward, device), times(two.forward, device)
        again = config.architecture.num_layers / few
        micro_batch = Times(*(x + again * (b - a) for x, a, b in zip(micro_batch, forward, deeper, strict=True)))
    return Times(*(micro_batches * a + b for a, b in zip(micro_batch, update, strict=True))), micro_batches * one.tokens


def longer(recorded: Sequence[Sequence[Operation]], lengths: Sequence[int], length: int) -> list[Operation]:
    """Extrapolate operations of rows of three lengths, the longest one last. Each has a constant part, of weights, one that grows with the
    length, and one that grows with its square, of attention. Recurrent models have more operations in longer rows: these grow all."""
    *_, last = recorded
    if len({len(operations) for operations in recorded}) > 1:
        more = length / lengths[-1]
        return [Operation(each.name, more * each.flops, {0: more * each.bytes}, {}) for each in last]
    needs = [[(each.flops, each.bytes) for each in operations] for operations in recorded]
    fitted = np.polyfit(lengths, np.array(needs, float).reshape(len(lengths), -1), 2)
    grown = np.polyval(fitted, length).clip(0).reshape(-1, 2)
    return [Operation(each.name, flops, {0: size}, {}) for each, (flops, size) in zip(last, grown.tolist(), strict=True)]


def fused(operations: Sequence[Operation]) -> list[Operation]:
    """Join all operations between two products into one, as a compiler does at best: what only they use stays in registers."""
    # a gradient that is added up in place is no read of it
    last_read = {memory: i for i, each in enumerate(operations) for memory in each.reads.keys() - each.writes.keys()}
    joined, end = [], 0
    for product, run in groupby(operations, key=lambda operation: operation.flops > 0):
        some = list(run)
        end += len(some)
        if product:
            joined += some
            continue
        reads, writes = {}, {}
        for operation in some:
            reads |= {memory: size for memory, size in operation.reads.items() if memory not in writes}
            writes |= operation.writes
        # a gradient of a weight is read by none, and kept
        kept = {memory: size for memory, size in writes.items() if last_read.get(memory, end) >= end}
        joined.append(Operation("fused", 0, reads, kept))
    return joined


def times(operations: Sequence[Operation], device: Device) -> Times:
    """Add up what bounds each operation."""
    both = [(operation.flops / device.flops, operation.bytes / device.bandwidth) for operation in operations]
    products = sum(by_flops for by_flops, by_bytes in both if by_flops >= by_bytes)
    memory = sum(by_bytes for by_flops, by_bytes in both if by_flops < by_bytes)
    return Times(products, memory, device.launch * len(operations))


@cache
def _recorded(text: str, vocab_size: int, layers: int, length: int, rows: int, low_precision: bool) -> Recording:
    """Record a micro-batch and an update. The first batch stands for all. `text` is the config as JSON, which can be a key of the cache."""
    config = params.Model.model_validate_json(text)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, objective, networks = sizing.on_meta(config, vocab_size, layers, length)
        with exact_widths():
            batch = objective.batches(sizing.text_of_rows(length, rows), rows, length, 0)[0]
        lstm_takes_any = torch.autocast("cpu", torch.bfloat16, enabled=low_precision)  # casts nothing on `meta`
        with _Recorder() as recorder, sizing.MetaMode(), _Autocast(low_precision), lstm_takes_any:
            losses, _ = objective.losses(model, batch.tensors, None)
            forward = list(recorder.operations)
            sum(loss for loss, _ in losses.values()).backward()
        model.zero_grad(set_to_none=True)
    join = fused if config.trainer.compile else list
    return Recording(join(forward), join(recorder.operations), _update(config, model), batch.counts["tokens"])


def _update(config: params.Model, model: LanguageModel) -> list[Operation]:
    """Record an update. torch's fused AdamW is not built for `meta`, and is one operation here."""
    optimizer = optimizers.build(config.optimizer, model, model.stacked(), lambda _: 0)
    weights = sum(
        weight.numel() for group in optimizer.param_groups for weight in group["params"] if not group.get("matrices")
    )
    matrices = [weight for group in optimizer.param_groups if group.get("matrices") for weight in group["params"]]
    for weight in matrices:
        weight.grad = torch.empty_like(weight)
    with _Recorder() as recorder:
        if matrices:
            optimizer.step()
    return [Operation("fused_adamw", 0, {0: UPDATE_BYTES * weights}, {}), *recorder.operations]


def _fused_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0, is_causal: bool = False,
) -> Tensor:  # fmt: skip
    """Attend by the kernel that a GPU takes, which keeps no matrix of attention weights: with a mask the second one."""
    if attn_mask is None:
        return torch.ops.aten._scaled_dot_product_flash_attention(query, key, value, dropout_p, is_causal)[0]
    bias = torch.zeros_like(attn_mask, dtype=query.dtype).expand(*query.shape[:3], key.shape[2])
    by_mask = torch.ops.aten._scaled_dot_product_efficient_attention
    return by_mask(query, key, value, bias, True, dropout_p, is_causal)[0]


def _cast(arguments: tuple, dtype: torch.dtype) -> tuple:
    return tree_map_only(Tensor, lambda tensor: tensor.to(dtype) if tensor.is_floating_point() else tensor, arguments)
