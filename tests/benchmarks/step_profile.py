"""Where a training step's time goes on a CPU, drawn: `python -m tests.benchmarks.step_profile` writes docs/images/step.png."""

from collections import Counter
from pathlib import Path

import matplotlib
import torch
from matplotlib import pyplot
from torch.optim import AdamW
from torch.profiler import ProfilerActivity, profile

from components.core import compute
from components.models import store
from components.optimizers import parameter_groups
from tests.benchmarks.bench_pretrain import BF16, SIZES, batches, ours
from tests.benchmarks.made import PIECES

KINDS = {
    "matrix products": ("mm", "addmm", "bmm", "baddbmm"),
    "softmax and loss": (
        "_log_softmax", "_log_softmax_backward_data", "_softmax", "_softmax_backward_data", "nll_loss_forward", "nll_loss_backward",
    ),
    "dropout": ("random_", "bernoulli_", "ge", "native_dropout"),
    "copies and casts": ("copy_", "clone", "cat", "fill_", "zero_", "zeros_like", "empty_strided", "masked_fill_"),
    "norms, activations": ("native_layer_norm", "native_layer_norm_backward", "gelu", "gelu_backward", "tanh", "tanh_backward"),
    "embeddings, gathers": ("index_select", "embedding", "embedding_dense_backward", "gather", "scatter_add_", "index_add_"),
    "optimizer, clipping": ("_fused_adamw_", "_foreach_norm", "_foreach_mul_", "linalg_vector_norm"),
}  # fmt: skip
STEPS = 10


def shares(name: str, size: str) -> tuple[dict[str, float], float]:
    """Milliseconds of a step by kind, and tokens a step."""
    layers, hidden, threads = SIZES[size]
    compute.prepare(threads)
    block = ours(name, layers, hidden, threads)
    objective, read = batches(block)
    model = store.build(block.architecture, PIECES)
    optimizer = AdamW(parameter_groups(model, 1e-3, 0.01), fused=True)

    def step(number: int) -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=BF16):
            losses, _ = objective.losses(model, read[number].tensors, None)
        sum(loss / read[number].counts[part] for part, (loss, _) in losses.items()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    for number in range(3):
        step(number)
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        for number in range(STEPS):
            step(number)
    own = {operation: kind for kind, operations in KINDS.items() for operation in operations}
    found = Counter()
    for event in profiled.key_averages():
        found[own.get(event.key.removeprefix("aten::"), "all else")] += event.self_cpu_time_total / 1000 / STEPS
    return dict(found), sum(read[number].counts["tokens"] for number in range(STEPS)) / STEPS


def main() -> None:
    matplotlib.use("agg")
    rows = {f"{name}, {size}": shares(name, size) for name in ("encoder", "decoder") for size in SIZES}
    figure, axes = pyplot.subplots(figsize=(9, 3.4), layout="constrained")
    left = [0.0] * len(rows)
    for number, kind in enumerate([*KINDS, "all else"]):
        widths = [100 * parts.get(kind, 0.0) / sum(parts.values()) for parts, _ in rows.values()]
        bars = axes.barh(list(rows), widths, left=left, label=kind, color=pyplot.get_cmap("tab20")(number * 2 % 20), edgecolor="white")
        axes.bar_label(bars, [f"{width:.0f}" if width >= 4 else "" for width in widths], label_type="center", fontsize=8)
        left = [one + other for one, other in zip(left, widths, strict=True)]
    axes.set_xlabel("% of a training step's time on the CPU")
    axes.invert_yaxis()
    axes.legend(ncols=4, fontsize=8, loc="lower center", bbox_to_anchor=(0.4, 1.0), frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(Path(__file__).parents[2] / "docs/images/step.png", dpi=110)
    for row, (parts, tokens) in rows.items():
        print(f"{row}: {sum(parts.values()):.0f} ms a step of {tokens:,.0f} tokens; " + ", ".join(f"{k} {v:.1f}" for k, v in parts.items()))


if __name__ == "__main__":
    main()
