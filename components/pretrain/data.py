"""The batches of a pre-training as a Lightning data module that starts at any step."""

import math
from collections.abc import Iterator
from itertools import count

import lightning as L
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from components.objectives.examples.phases import Phases
from components.objectives.examples.windows import Batch, Batches, Rows, Window


def micro_batches(accumulate: int, world_size: int, rank: int) -> tuple[int, slice]:
    """Micro-batches of a step over all devices, and those of a rank."""
    total = math.lcm(accumulate, world_size)
    each = total // world_size
    return total, slice(rank * each, (rank + 1) * each)


class Idle(dict):
    """Rows of another rank, for one that has none in a step: it reads along, since all ranks together gather the layers
    of a sharded model, and counts nothing."""


class Windows(IterableDataset):
    """What is drawn together, from the step `first` on; endless unless `last` is given. Workers take turns, so that the order is kept."""

    def __init__(self, batches: Phases | Batches, first: int, last: int | None):
        self.batches, self.first, self.last = batches, first, last

    def __iter__(self) -> Iterator[Window]:
        worker, step = get_worker_info(), self.first
        for turn in count():
            if self.last is not None and step >= self.last:
                return
            first, last = self.batches.bounds(step)
            if worker is None or turn % worker.num_workers == worker.id:
                yield self.batches.draw(first, last)
            step = last


class Steps:
    """The steps first, first + 1, ... as a rank reads them: its micro-batches, `(rows, counts)` with the counts of all ranks."""

    def __init__(
        self, batches: Phases | Batches, first: int, last: int | None, micro_batches: int, share: slice, workers: int, pinned: bool
    ):  # fmt: skip
        self.first, self.last, self.micro_batches, self.share = first, last, micro_batches, share
        options = {"prefetch_factor": 2, "multiprocessing_context": "fork"} if workers else {}
        self.loader = DataLoader(Windows(batches, first, last), batch_size=None, num_workers=workers, pin_memory=pinned, **options)

    def __iter__(self) -> Iterator[tuple[list[Rows], dict[str, float]]]:
        for window in self.loader:
            for step, batch in enumerate(window, window.first):
                if step >= self.first and (self.last is None or step < self.last):
                    yield self._own(batch)

    def _own(self, batch: Batch) -> tuple[list[Rows], dict[str, float]]:
        parts = {name: value.tensor_split(self.micro_batches)[self.share] for name, value in batch.rows.items()}
        shares = [dict(zip(parts, own, strict=True)) for own in zip(*parts.values(), strict=True)]
        first = Idle({name: value[:1] for name, value in batch.rows.items()})
        return [own if len(next(iter(own.values()))) else first for own in shares], batch.counts


class PretrainData(L.LightningDataModule):
    """Training from the trainer's own step, so that a resumed run reads on; validation on the way over the same steps each time."""

    def __init__(self, train: Phases, valid: Batches, validation_batches: int, accumulate: int, workers: int | None):
        """`workers` are processes that draw ahead, None: two where a GPU waits for them."""
        super().__init__()
        self.train, self.valid, self.accumulate, self.workers = train, valid, accumulate, workers
        self.validation_steps = min(validation_batches, valid.epoch_steps())

    def _steps(self, batches: Phases | Batches, first: int, last: int | None, accumulate: int, workers: int) -> Steps:
        own = micro_batches(accumulate, self.trainer.world_size, self.trainer.global_rank)
        return Steps(batches, first, last, *own, workers, pinned=self.trainer.strategy.root_device.type == "cuda")

    def train_dataloader(self) -> Steps:
        workers = self.workers if self.workers is not None else 2 * (self.trainer.strategy.root_device.type == "cuda")
        return self._steps(self.train, self.trainer.global_step, None, self.accumulate, workers)

    def val_dataloader(self) -> Steps:
        return self._steps(self.valid, 0, self.validation_steps, 1, 0)

    def whole_split(self) -> Steps:
        """All of the validation text, for the figures of a finished model."""
        return self._steps(self.valid, 0, self.valid.epoch_steps(), 1, 0)
