"""Whether compiled training steps become kernels of a GPU, without one: `python -m tests.benchmarks.triton_kernels`, some minutes.

A training step of each family runs on the CPU in bf16, with its model compiled as `trainer.compile` does. The graphs of its forward and
backward passes are then moved to `cuda`, and torch's compiler writes Triton code for them, which Triton compiles for compute capability
8.0 (A100) or 9.0 (H100). Nothing is run. It needs a torch with CUDA libraries, as PyPI has it, on a machine without a card.

Attention is decomposed here, and a kernel of torch on a GPU. Products are cuBLAS's. The compiler is told of the card by replacing what it
asks torch's and Triton's drivers, which is why this is no test.
"""

import argparse
import copy
import time
import warnings
from contextlib import nullcontext
from types import SimpleNamespace

import torch
from torch import Tensor, fx
from torch._dynamo import utils as dynamo_utils
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.device_interface import CudaInterface
from torch._functorch.aot_autograd import make_boxed_func
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._guards import TracingContext, tracing
from torch._inductor.compile_fx import compile_fx_inner
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.fx_passes.joint_graph import joint_graph_passes
from torch._inductor.runtime import triton_helpers
from torch._inductor.runtime.triton_heuristics import CachingAutotuner
from torch._inductor.virtualized import V
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _triton
from torch.utils._pytree import tree_map_only

from components import objectives, params
from components.models import store
from components.pretrain import sizing
from tests.pretrain.test_device import PAIRS

MULTIPROCESSORS = {80: 108, 90: 132}
SHARED_MEMORY = {80: 166_912, 90: 232_448}
"""Bytes of a block, at most."""
CARD = torch.device("cuda:0")
VOCABULARY = 2048
REFUSED = {"electra", "quick-thoughts", "skip-thoughts", "ulmfit", "elmo", "gru"}
"""Those that read layers, and recurrent ones: `trainer.compile` is refused."""


def graphs(architecture: dict, objective: dict) -> list[tuple[fx.GraphModule, bool]]:
    """The graphs of a training step, and whether each is of the backward pass. Raises torch's error where the model is not one graph."""
    config = params.Model.model_validate({
        "encoding": "none", "architecture": architecture, "objective": objective, "optimizer": {"learning_rate": 1e-3},
        "budget": {"steps": 1}, "batch_size": 8, "trainer": {"compile": True},
    })  # fmt: skip
    length, tokens = config.architecture.max_length, sizing._DummyTokenizer(VOCABULARY)
    built, model = objectives.build(config.objective, tokens), store.build(config.architecture, tokens).train()
    built.networks(model)
    batch, found = built.batches(sizing.text_of_rows(length, 8), 8, length, seed=1)[0], []

    def keep(backward: bool):
        def compiler(graph: fx.GraphModule, _):
            found.append((copy.deepcopy(graph), backward))
            return make_boxed_func(graph.forward)

        return compiler

    def partition(joint: fx.GraphModule, inputs: object, **options) -> tuple[fx.GraphModule, fx.GraphModule]:
        with V.set_fake_mode(dynamo_utils.detect_fake_mode(inputs)):
            joint_graph_passes(joint)  # makes the draws of dropout its own, as `torch.compile` does
        return min_cut_rematerialization_partition(joint, inputs, compiler="inductor", **options)

    backend = aot_autograd(
        fw_compiler=keep(False), bw_compiler=keep(True), decompositions=select_decomp_table(), partition_fn=partition
    )
    model.compile(fullgraph=True, backend=backend)
    with sdpa_kernel(SDPBackend.MATH), torch.autocast("cpu", torch.bfloat16):
        losses, _ = built.losses(model, batch.tensors, None)
    sum(loss for loss, _ in losses.values()).backward()
    return found


def pretend(capability: int) -> list[str]:
    """Let the compiler see a card of this capability; returns the list to which it adds each kernel that Triton has compiled."""
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver

    card = SimpleNamespace(
        major=capability // 10, minor=capability % 10, name="no card", multi_processor_count=MULTIPROCESSORS[capability],
        total_memory=80 * 2**30, regs_per_multiprocessor=65_536, max_threads_per_multi_processor=2048, max_threads_per_block=1024,
        warp_size=32, shared_memory_per_block=49_152, shared_memory_per_block_optin=SHARED_MEMORY[capability],
        gcnArchName="", L2_cache_size=40 * 2**20,
    )  # fmt: skip
    answers = {
        "get_device_properties": card, "get_compute_capability": capability, "is_available": True, "is_triton_capable": True,
        "raise_if_triton_unavailable": None, "current_device": 0, "device_count": 1, "synchronize": None, "get_raw_stream": 0,
    }  # fmt: skip
    for name, answer in answers.items():
        for asked in (CudaInterface, CudaInterface.Worker):
            setattr(asked, name, staticmethod(lambda *_, answer=answer, **__: answer))
    answers |= {"get_device_capability": (card.major, card.minor), "is_bf16_supported": True, "_lazy_init": None}
    answers |= {"_exchange_device": 0, "_maybe_exchange_device": 0, "device": nullcontext(), "set_rng_state": None}
    for name, answer in (answers | {"get_rng_state": torch.zeros(16, dtype=torch.uint8)}).items():
        setattr(torch.cuda, name, lambda *_, answer=answer, **__: answer)
    for function in vars(_triton).values():  # answers from before
        getattr(function, "cache_clear", lambda: None)()
    dynamo_utils.preserve_rng_state = nullcontext
    triton_helpers.set_driver_to_gpu = lambda: None
    driver.set_active(SimpleNamespace(
        get_current_target=lambda: GPUTarget("cuda", capability, 32), get_current_device=lambda: 0, get_current_stream=lambda _=0: 0,
        get_active_torch_device=lambda: CARD, get_device_interface=lambda: torch.cuda,
    ))  # fmt: skip
    compiled, precompile = [], CachingAutotuner.precompile

    def without_loading(kernel: CachingAutotuner, *_, **__) -> None:
        precompile(kernel, warm_cache_only=True)
        compiled.append(kernel.fn.__name__)

    CachingAutotuner.precompile = without_loading
    return compiled


def on_the_card(graph: fx.GraphModule, mode: FakeTensorMode) -> fx.GraphModule:
    """The graph with all its tensors on the card."""

    def device(value: object) -> object:
        return CARD if value == torch.device("cpu") else value

    def moved(tensor: Tensor) -> Tensor:
        with mode:
            return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=CARD)

    for node in graph.graph.nodes:
        node.args, node.kwargs = fx.node.map_aggregate(node.args, device), fx.node.map_aggregate(node.kwargs, device)
        if "val" in node.meta:
            node.meta["val"] = tree_map_only(Tensor, moved, node.meta["val"])
    graph.recompile()
    return graph


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("--capability", type=int, default=90, choices=[*MULTIPROCESSORS])
    asked.add_argument("names", nargs="*", help=f"of {', '.join(PAIRS)}")
    given = asked.parse_args()
    if torch.version.cuda is None or torch.cuda.is_available():
        raise SystemExit(
            f"torch {torch.__version__}: a build with CUDA libraries is needed, and a machine without a card"
        )
    warnings.simplefilter("ignore")
    torch._inductor.config.compile_threads = 1  # in this process, which pretends
    found, problems = {}, {}
    for name in given.names or PAIRS:
        torch._dynamo.reset()
        try:
            found[name] = graphs(*PAIRS[name])
        except Exception as error:  # any of torch's
            problems[name] = str(error).splitlines()[0]
    compiled = pretend(given.capability)
    for name, traced in found.items():
        compiled.clear()
        began = time.perf_counter()
        try:
            for graph, backward in traced:
                mode = FakeTensorMode()
                moved = on_the_card(graph, mode)
                inputs = [node.meta["val"] for node in moved.graph.nodes if node.op == "placeholder"]
                with tracing(TracingContext(mode)), mode:
                    compile_fx_inner(moved, inputs, is_backward=backward)
        except Exception as error:
            problems[name] = str(error).splitlines()[0]
            continue
        backward = sum(backward for _, backward in traced)
        count = f"{len(traced) - backward} + {backward} graphs forward and backward, {len(compiled)} kernels"
        print(f"{name}: {count} for sm_{given.capability}, {time.perf_counter() - began:.0f} s", flush=True)
    for name, problem in problems.items():
        print(f"{name}: {problem}")
    raise SystemExit(1 if set(problems) - REFUSED else 0)


if __name__ == "__main__":
    main()
