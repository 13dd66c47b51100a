"""Time and memory of a training step against the length of its rows, for each attention of the encoder for long texts.

`python -m tests.benchmarks.attention_cost` writes docs/attention_cost.csv and docs/images/attention_cost.png.
"""

import time
from pathlib import Path

import pandas as pd
import torch
from matplotlib import pyplot as plt

from components import objectives, params
from components.comparison.plots import legend, styles
from components.core import compute
from components.core.flops import flop_counter
from components.models import store
from tests.benchmarks.made import PIECES, made_text
from tests.memory import peak_bytes

LENGTHS = (64, 128, 256, 512, 1024, 2048, 4096)
KINDS = {
    "full": {"attention": "full"}, "full, weights stored": {"attention": "full", "dropout": 0.1},
    "windows": {"attention": "windows"}, "hashes": {"attention": "hashes"}, "linear": {"attention": "linear"},
}  # fmt: skip
"""Dropout on the attention weights keeps a CPU from fusing attention: the weights of all pairs of tokens are stored."""
ROUNDS, ROOT = 4, Path(__file__).parents[2]


def row(kind: str, length: int) -> dict[str, float | str | int]:
    """FLOPs a token, tokens a second and MiB a thousand tokens, of a step of 4,096 tokens."""
    architecture = {
        "name": "long_encoder", "num_layers": 2, "hidden_size": 128, "num_heads": 2, "intermediate_size": 512,
        "max_length": length, "positions": "rotary", "dropout": 0.0, **KINDS[kind],
    }  # fmt: skip
    config = params.Model.model_validate({
        "seed": 1, "encoding": "made", "architecture": architecture, "optimizer": {"learning_rate": 1e-3},
        "budget": {"steps": 1}, "batch_size": max(LENGTHS) // length,
        "objective": {"name": "mlm", "next_sentence": False, "inputs": "full_sentences"},
    })  # fmt: skip
    objective, model = objectives.build(config.objective, PIECES), store.build(config.architecture, PIECES).train()
    batch = objective.batches(made_text(500_000), config.batch_size, length, 1)[0]
    tokens = batch.counts["tokens"]

    def step() -> None:
        losses, _ = objective.losses(model, batch.tensors, None)
        sum(loss for loss, _ in losses.values()).backward()

    with flop_counter() as counter:
        step()
    seconds = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - started)
    return {
        "attention": kind, "length": length, "mflops_per_token": counter.get_total_flops() / tokens / 1e6,
        "tokens_per_second": tokens / min(seconds), "mib_per_1000_tokens": peak_bytes(step) / 2**20 / tokens * 1000,
    }  # fmt: skip


def main() -> None:
    compute.prepare(1)
    rows = []
    for length in LENGTHS:
        for kind in KINDS:
            torch.manual_seed(0)
            rows.append(row(kind, length))
            print("{attention}, {length}: {mflops_per_token:.2f} MFLOPs, {tokens_per_second:,.0f} tokens/s, "
                  "{mib_per_1000_tokens:.0f} MiB".format(**rows[-1]), flush=True)  # fmt: skip
    table = pd.DataFrame(rows)
    table.to_csv(ROOT / "docs/attention_cost.csv", index=False, float_format="%.4g", lineterminator="\n")
    draw(table)


def draw(table: pd.DataFrame) -> None:
    titles = {
        "mflops_per_token": "MFLOPs a token", "tokens_per_second": "tokens a second",
        "mib_per_1000_tokens": "MiB a thousand tokens",
    }  # fmt: skip
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained")
    for axis, (column, title) in zip(axes, titles.items(), strict=True):
        for (kind, points), style in zip(table.groupby("attention", sort=False), styles(), strict=False):
            axis.plot(points["length"], points[column], label=kind, markersize=5, **style)
        axis.set_xscale("log", base=2)
        axis.set_ylim(bottom=0)
        axis.set_xticks(LENGTHS, [f"{length:,}" for length in LENGTHS], fontsize=8)
        axis.set_xlabel("tokens of a row")
        axis.set_title(title)
    legend(figure, 5)
    figure.savefig(ROOT / "docs/images/attention_cost.png", dpi=110)


if __name__ == "__main__":
    main()
