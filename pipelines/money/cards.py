"""What fits on a GPU that is not here, and how long it takes: `sesame plan STAGE --cards`."""

from collections.abc import Collection
from typing import NamedTuple

from components import params
from components.core.errors import SesameError
from pipelines.money import trainings
from pipelines.money.forecast import duration


class Card(NamedTuple):
    """A GPU by its data sheet."""

    gib: float
    """Memory."""
    teraflops: float
    """Of dense matrix products in this precision."""
    gigabytes: float
    """That the memory reads and writes in a second."""
    link: float
    """Gigabytes that a card sends to another one of the machine in a second, by NVLink or PCI Express."""
    precision: str = "bf16-mixed"


CARDS = {
    "T4": Card(15, 8.1, 320, 16, "32-true"), "RTX 4090": Card(24, 165, 1008, 32), "A100 40": Card(40, 312, 1555, 300),
    "A100 80": Card(80, 312, 2039, 300), "H100": Card(80, 989, 3350, 450), "H200": Card(141, 989, 4800, 450),
}  # fmt: skip
"""A T4 has no bf16."""
RESERVED = 2 * 2**30
"""Bytes for CUDA, its libraries and the gaps of the allocator."""
PRODUCTS, MEMORY = 0.7, 0.8
"""Shares of the data sheet's speeds that large products and large copies reach, the latter also between cards."""
LAUNCH = 6e-6
"""Seconds in which torch starts an operation. None of these three has been measured here. With them the step of a compiled GPT-2 on an A100
is predicted within a tenth of a published one (tests/pretrain/test_roofline.py)."""
BACKWARD = 2 / 3
"""Share of a micro-batch, that of its backward pass, during which `ddp` exchanges gradients; only what is left over takes time."""
COLUMNS = ["stage", "card", "rows that fit", "accumulate", "time", "bound by"]


def rows(names: Collection[str], all_params: params.Params) -> list[list[str]]:
    """For each stage that trains on text and each card: how many of the longest rows fit at once, the least `accumulate` with which the
    batch of params does, about how long the training takes, and what takes most of that time.

    Raises SesameError where no stage trains.
    """
    from components.pretrain import roofline, sizing  # torch: 2 s

    works = {name: work for name in names if (work := trainings.of(name, all_params)) and not work.tuning}
    if not works:
        raise SesameError(
            "--cards: no stage of the plan trains on text; name one that does, as `sesame plan pretrain@bert --cards`"
        )
    table = []
    for name, work in works.items():
        model, size = work.model, sizing.size(work.model, work.vocab_size)
        shards = work.devices if model.run.strategy == "fsdp" else 1
        tokens = work.tokens(size.flops, work.step_tokens)
        for label, card in CARDS.items():
            fixed = size.memory(0, shards, card.precision)
            fit = int((card.gib * 2**30 - RESERVED - fixed) / (size.memory(1, shards, card.precision) - fixed))
            counts = range(work.devices, int(work.batch) + 1, work.devices)  # of micro-batches, over all devices
            least = next((count for count in counts if work.batch % count == 0 and work.batch / count <= fit), None)
            shown = [name, label, f"{max(0, fit):,}"]
            if least is None:
                table.append([*shown, "-", "-", "-"])
                continue
            device = roofline.Device(PRODUCTS * card.teraflops * 1e12, MEMORY * card.gigabytes * 1e9, LAUNCH)
            rows_at_once, micro_batches = int(work.batch) // least, least // work.devices
            times, read = roofline.step(
                model, work.vocab_size, rows_at_once, micro_batches, "bf16" in card.precision, device
            )
            computing = times.total(device)
            if model.run.strategy == "fsdp":  # in each micro-batch all weights, for both passes, and all gradients
                waiting = exchange(size.parameters, work.devices, 3 * micro_batches, card) - computing
            else:  # each gradient twice, during the last backward pass
                hidden = computing / micro_batches * BACKWARD
                waiting = exchange(size.parameters, work.devices, 2, card) - hidden
            seconds = tokens and tokens / (read * work.devices) * (computing + max(0, waiting))
            limit = "exchange of gradients" if waiting > max(times) else times.limit
            table.append([*shown, f"{least}", duration(seconds), limit])
    return table


def exchange(parameters: float, devices: int, times: int, card: Card) -> float:
    """Seconds in which cards send so many numbers of 32 bits, each so many times, in a ring (Patarasuk and Yuan 2009)."""
    return times * (devices - 1) / devices * 4 * parameters / (MEMORY * card.link * 1e9)
