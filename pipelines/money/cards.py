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
    precision: str = "bf16-mixed"


CARDS = {
    "T4": Card(15, 8.1, "32-true"), "RTX 4090": Card(24, 165), "A100 40": Card(40, 312), "A100 80": Card(80, 312),
    "H100": Card(80, 989), "H200": Card(141, 989),
}  # fmt: skip
"""A T4 has no bf16."""
RESERVED = 2 * 2**30
"""Bytes for CUDA, its libraries and the gaps of the allocator."""
SHARE = 0.4
"""Of the speed on the data sheet, that trainings of BERT-base's size commonly reach."""
COLUMNS = ["stage", "card", "rows that fit", "accumulate", "time"]


def rows(names: Collection[str], all_params: params.Params) -> list[list[str]]:
    """For each stage that trains on text and each card: how many of the longest rows fit at once, the least `accumulate` with which the
    batch of params does, and about how long the training takes. Raises SesameError where no stage trains."""
    from components.pretrain import sizing  # torch: 2 s

    works = {name: work for name in names if (work := trainings.of(name, all_params)) and not work.tuning}
    if not works:
        raise SesameError("--cards: no stage of the plan trains on text; name one that does, as `sesame plan pretrain@bert --cards`")
    table = []
    for name, work in works.items():
        model, size = work.model, sizing.size(work.model, work.vocab_size)
        shards = work.devices if model.run.strategy == "fsdp" else 1
        tokens = work.tokens(size.flops, model.batch_size * model.architecture.max_length)
        for label, card in CARDS.items():
            fixed = size.memory(0, shards, card.precision)
            fit = int((card.gib * 2**30 - RESERVED - fixed) / (size.memory(1, shards, card.precision) - fixed))
            counts = range(work.devices, int(work.batch) + 1, work.devices)  # of micro-batches, over all devices
            least = next((count for count in counts if work.batch % count == 0 and work.batch / count <= fit), None)
            seconds = tokens and tokens * size.flops / (SHARE * card.teraflops * 1e12 * work.devices)
            table.append([name, label, f"{max(0, fit):,}", f"{least}" if least else "-", duration(seconds) if least else "-"])
    return table
