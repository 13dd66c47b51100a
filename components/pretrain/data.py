"""The batches of a pre-training as a Lightning data module that starts at any step."""

import math
from collections.abc import Iterator
from itertools import count

import lightning as L
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from components.objectives.examples.batches import Batch, Batches, Chunk, Tensors
from components.objectives.examples.phases import Phases


def micro_batches(accumulate: int, world_size: int, rank: int) -> tuple[int, slice]:
    """Return the number of micro-batches of a step over all devices, and the slice of them that a rank computes."""
    total = math.lcm(accumulate, world_size)
    per_rank = total // world_size
    return total, slice(rank * per_rank, (rank + 1) * per_rank)


class DummyBatch(dict):
    """A copy of another rank's sequence, for a rank that has none in a step.

    The rank has to run the model too, since all ranks together gather the layers of a sharded model; its loss is not counted.
    """


class ChunkDataset(IterableDataset):
    """Chunks of batches from the step `first` on; endless unless `last` is given. Workers take turns, which keeps the order."""

    def __init__(self, batches: Phases | Batches, first: int, last: int | None):
        self.batches, self.first, self.last = batches, first, last

    def __iter__(self) -> Iterator[Chunk]:
        worker, step = get_worker_info(), self.first
        for turn in count():
            if self.last is not None and step >= self.last:
                return
            first, last = self.batches.bounds(step)
            if worker is None or turn % worker.num_workers == worker.id:
                yield self.batches.draw(first, last)
            step = last


class StepLoader:
    """The steps first, first + 1, ... as one rank reads them: its micro-batches, and the counts over all ranks."""

    def __init__(
        self, batches: Phases | Batches, first: int, last: int | None, micro_batches: int, share: slice, workers: int, pinned: bool
    ):  # fmt: skip
        self.first, self.last, self.micro_batches, self.share = first, last, micro_batches, share
        options = {"prefetch_factor": 2, "multiprocessing_context": "fork"} if workers else {}
        self.loader = DataLoader(ChunkDataset(batches, first, last), batch_size=None, num_workers=workers, pin_memory=pinned, **options)

    def __iter__(self) -> Iterator[tuple[list[Tensors], dict[str, float]]]:
        for chunk in self.loader:
            for step, batch in enumerate(chunk, chunk.first):
                if step >= self.first and (self.last is None or step < self.last):
                    yield self._split(batch)

    def _split(self, batch: Batch) -> tuple[list[Tensors], dict[str, float]]:
        """Return this rank's micro-batches of a step, and the counts of the complete step."""
        columns = {name: tensor.tensor_split(self.micro_batches)[self.share] for name, tensor in batch.tensors.items()}
        micro_batches = [dict(zip(columns, tensors, strict=True)) for tensors in zip(*columns.values(), strict=True)]
        dummy = DummyBatch({name: tensor[:1] for name, tensor in batch.tensors.items()})
        return [tensors if len(next(iter(tensors.values()))) else dummy for tensors in micro_batches], batch.counts


class PretrainData(L.LightningDataModule):
    """Training batches from the trainer's current step on; each validation during training reads the same steps."""

    def __init__(self, train: Phases, valid: Batches, validation_batches: int, accumulate: int, workers: int | None):
        """`workers` is the number of processes that prepare batches; None means two with a GPU, none on a CPU."""
        super().__init__()
        self.train, self.valid, self.accumulate, self.workers = train, valid, accumulate, workers
        self.validation_steps = min(validation_batches, valid.epoch_steps())

    def _loader(self, batches: Phases | Batches, first: int, last: int | None, accumulate: int, workers: int) -> StepLoader:
        total, share = micro_batches(accumulate, self.trainer.world_size, self.trainer.global_rank)
        return StepLoader(batches, first, last, total, share, workers, pinned=self.trainer.strategy.root_device.type == "cuda")

    def train_dataloader(self) -> StepLoader:
        workers = self.workers if self.workers is not None else 2 * (self.trainer.strategy.root_device.type == "cuda")
        return self._loader(self.train, self.trainer.global_step, None, self.accumulate, workers)

    def val_dataloader(self) -> StepLoader:
        return self._loader(self.valid, 0, self.validation_steps, 1, 0)

    def full_validation(self) -> StepLoader:
        """Return a loader of the complete validation split, for the metrics of a finished model."""
        return self._loader(self.valid, 0, self.valid.epoch_steps(), 1, 0)
