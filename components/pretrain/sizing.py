"""Parameters, FLOPs and memory of a training, counted without weights: tensors on torch's `meta` device have shapes only."""

import os
import warnings
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map_only

from components import objectives, params
from components.core import compute
from components.core.flops import flop_counter
from components.models import store
from components.models.contract import LanguageModel
from components.objectives.contract import Objective
from components.objectives.examples.batches import exact_widths
from components.optimizers.adamw.config import AdamW
from components.pretrain.cost import matmul_peak
from components.text.encode import Shard, Split
from components.text.tokenizer import CLS, SEP, SPECIALS

BATCH_SIZE = 8
MAX_LENGTH = 2048
"""Tokens of the longest sequence that is counted. Longer ones are extrapolated: activations grow with the length, and the FLOPs of a token
linearly with it, by the slope from half of this length to all of it, since only attention looks at more tokens."""
TOO_MANY_PARAMETERS = 2.0**61
"""The least number of parameters of a model with a matrix of more bytes than torch can count."""


@dataclass(frozen=True)
class Size:
    """The requirements of a training."""

    parameters: float
    flops: float
    """Of forward and backward, per token, without those of `trainer.recompute`."""
    activation_bytes: float
    """Activations of a sequence that are stored for the backward pass, in 32 bit. Of attention these are queries, keys, values and
    outputs: fused attention stores no matrices."""
    largest_bytes: float
    """The largest matrix of weights, in 32 bit."""

    def memory(self, sequences: float, shards: int, precision: str) -> float:
        """Return the bytes on a device: sharded weights, gradients and Adam's moments of 4 bytes each, activations, and the
        gradient of the largest matrix twice while it is computed.

        Within 15 % of what a CPU's allocator counts, 20 % for LSTMs (tests/pretrain/test_memory.py).
        """
        activations = sequences * self.activation_bytes / (2 if "bf16" in precision else 1)
        return 16 * self.parameters / shards + activations + 2 * self.largest_bytes


class _DummyTokenizer:
    """Stands in for a tokenizer that may not be trained yet; all its tokens are alike."""

    path = None

    def __init__(self, size: int):
        self.vocab_size = size
        self.byte_lengths = np.broadcast_to(np.int64(4), size)  # one number in memory
        self.starts_word = np.broadcast_to(np.True_, size)
        self.pieces = np.broadcast_to(np.array(b"x"), size)

    def falls_back(self, i: int) -> bool:
        return False

    def characters(self, shortest: int = 1) -> np.ndarray:
        return np.broadcast_to(np.int64(1), (self.vocab_size, max(8, shortest)))


class MetaMode(TorchFunctionMode):
    """Moves ids from the CPU to `meta` where they meet weights there. Indexing ids stays on the CPU."""

    fused = False  # inside fused attention

    def __init__(self):
        super().__init__()
        self.attended: list[Tensor] = []  # what fused attention stores: its inputs and its output

    def __torch_function__(self, function, types, args=(), kwargs=None):
        arguments = (args, kwargs or {})
        if function is not Tensor.__getitem__ and any(isinstance(leaf, Tensor) and leaf.is_meta for leaf in tree_leaves(arguments)):
            arguments = tree_map_only(Tensor, lambda tensor: tensor.to("meta"), arguments)
        attends = function is scaled_dot_product_attention
        before, self.fused = self.fused, self.fused or attends
        try:
            result = function(*arguments[0], **arguments[1])
        finally:
            self.fused = before
        self.attended += [*arguments[0][:3], result] if attends else []
        return result


def text_of_rows(length: int, rows: int) -> Split:
    """Build documents of two segments that together fill a sequence of this length, more than enough for so many of them."""
    segment, documents = max(1, (length - 3) // 2), 4 * rows + 4
    first = np.arange(documents) * (2 * segment + 3)
    tokens = np.full(documents * (2 * segment + 3), len(SPECIALS), dtype=np.uint16)
    segments = np.stack([first + 1, first + 1 + segment, first + 2 + segment, first + 2 + 2 * segment], 1).reshape(-1, 2)
    tokens[first], tokens[segments[:, 1]] = CLS, SEP
    return Split((Shard(tokens, segments, np.arange(documents + 1) * 2),))


def size(config: params.Model, vocab_size: int) -> Size:
    """Estimate the requirements of a training, whether or not its text and tokenizer exist.

    The layers are alike: models with a few layers and with twice as many are counted, and the rest is extrapolated.
    """
    full_length = config.objective.row_length(config.architecture.max_length)
    few = few_layers(config)
    more = config.architecture.num_layers / few - 1

    # settings without influence on the size, replaced so that all variants and seeds of a study are counted once
    fixed = {"seed": 1, "encoding": "any", "optimizer": AdamW(learning_rate=1), "budget": params.Budget(steps=1)}
    text = config.model_copy(update=fixed | {"trainer": params.Trainer()}).model_dump_json()

    def counted(length: int) -> tuple[_Counts, _Counts]:
        """Of the model, and of one of its layers."""
        one, two = (_counted(text, vocab_size, layers, length) for layers in (few, 2 * few))
        of_layer = _Counts(*((b - a) / few for a, b in zip(one, two, strict=True)))
        return _Counts(*(a + more * few * b for a, b in zip(one, of_layer, strict=True))), of_layer

    length = min(full_length, MAX_LENGTH)
    whole, of_layer = counted(length)
    activations, flops = whole.activations, whole.flops
    if config.trainer.recompute:  # what layers read is kept; the head's activations are freed before those of a layer are computed again
        beside = activations - config.architecture.num_layers * of_layer.activations
        activations = whole.inputs + max(beside, of_layer.activations)
    if full_length > length:
        flops += (full_length - length) * (flops - counted(length // 2)[0].flops) / (length - length // 2)
    # fused attention stores no matrices, so that activations grow with the length alone
    return Size(whole.parameters, flops, activations * full_length / length, whole.largest)


def few_layers(config: params.Model) -> int:
    """Return a number of layers whose groups are as many as the model's; it and twice as many tell what a layer needs."""
    return max(2, getattr(config.architecture, "layer_groups", 1))


def on_meta(
    config: params.Model, vocab_size: int, layers: int, length: int
) -> tuple[LanguageModel, Objective, dict[str, nn.Module]]:  # fmt: skip
    """Build a model of so many layers without weights, and its objective with its networks, for rows of so many tokens."""
    settings = config.objective.with_row_length(length)
    architecture = config.architecture.model_copy(update={"num_layers": layers, "max_length": length})
    objective = objectives.build(settings, _DummyTokenizer(len(SPECIALS) + 1 + settings.sentinels(length)))
    with torch.device("meta"):
        model = store.build(architecture, _DummyTokenizer(vocab_size))
        return model, objective, objective.networks(model)


class _Counts(NamedTuple):
    """What is counted of a model with some layers: the fields of `Size`, and the bytes that layers read of a sequence."""

    parameters: float
    flops: float
    activations: float
    largest: float
    inputs: float


@cache
def _counted(text: str, vocab_size: int, layers: int, length: int) -> _Counts:
    """Count a model with so many layers; `text` is the config as JSON, which can be a key of the cache."""
    config = params.Model.model_validate_json(text)
    saved: dict[int, int] = {}
    inputs: dict[int, int] = {}
    flops = tokens = most_saved = 0.0

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if not mode.fused and storage._cdata not in weights:
            saved[storage._cdata] = storage.nbytes()
        return tensor

    def read(_layer: nn.Module, values: tuple) -> None:
        tensors = [value for value in tree_leaves(values) if isinstance(value, Tensor) and value.is_floating_point()]
        inputs.update({tensor.untyped_storage()._cdata: tensor.untyped_storage().nbytes() for tensor in tensors})

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # arrays that are not writable, TF32
        try:
            model, objective, networks = on_meta(config, vocab_size, layers, length)
            for layer in model.stacked():
                layer.register_forward_pre_hook(read)
            parameters = [parameter for module in (model, *networks.values()) for parameter in module.parameters()]
            weights = {parameter.untyped_storage()._cdata for parameter in parameters}
            batches = objective.batches(text_of_rows(length, BATCH_SIZE), BATCH_SIZE, length, 0)
            for step, share in batches.representative_steps(tokens=1).items():
                saved.clear()
                inputs.clear()
                with exact_widths():
                    batch = batches[step]
                hooks = torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)
                with hooks, flop_counter() as counter, MetaMode() as mode:
                    losses, _ = objective.losses(model, batch.tensors, None)
                    for tensor in mode.attended:
                        saved[tensor.untyped_storage()._cdata] = tensor.untyped_storage().nbytes()
                    sum(loss for loss, _ in losses.values()).backward()
                flops += share * counter.get_total_flops()
                tokens += share * batch.counts["tokens"]
                most_saved = max(most_saved, sum(saved.values()))
        except RuntimeError as error:
            if "overflow" not in str(error):
                raise
            return _Counts(TOO_MANY_PARAMETERS, 6 * TOO_MANY_PARAMETERS, 0.0, 0.0, 0.0)
    count = sum({id(parameter): parameter.numel() for parameter in parameters}.values())
    largest = max(parameter.numel() for parameter in parameters)
    return _Counts(count, flops / tokens, most_saved / BATCH_SIZE, 4.0 * largest, sum(inputs.values()) / BATCH_SIZE)


@dataclass(frozen=True)
class Machine:
    """The machine that a training would run on."""

    peak: float
    """FLOP/s of a matmul."""
    precision: str
    gpu_memory: int | None
    """Bytes; None on a CPU."""


@cache
def machine(accelerator: str, precision: str, threads: int | None) -> Machine:
    """Return this machine as a training with these settings uses it; measuring takes half a second."""
    gpu = accelerator != "cpu" and torch.cuda.is_available()
    if threads and not gpu:
        torch.set_num_threads(min(threads, os.cpu_count() or 1))
    device = torch.device("cuda" if gpu else "cpu")
    precision = compute.precision(precision, accelerator)
    # twice: on a busy machine the first may be a single product, with the making of its kernel
    peak = max(matmul_peak(device, torch.bfloat16 if "bf16" in precision else torch.float32, 0.25) for _ in range(2))
    return Machine(peak, precision, torch.cuda.mem_get_info()[1] if gpu else None)
