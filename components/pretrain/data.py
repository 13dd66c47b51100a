"""The batches of a pre-training as a Lightning data module that starts at any step."""

from collections.abc import Iterator

import lightning as L
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from components.objectives.contract import Batches


class Steps(IterableDataset):
    """The rows of this rank for steps first, first + 1, ...; endless unless `last` is given."""

    def __init__(self, batches: Batches, first: int, last: int | None, rank: int, world: int):
        self.batches, self.first, self.last, self.rank, self.world = batches, first, last, rank, world

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        step = self.first
        while self.last is None or step < self.last:
            yield {key: value[self.rank :: self.world] for key, value in self.batches[step].items()}
            step += 1


class PretrainData(L.LightningDataModule):
    """Training from the trainer's own step, so that a resumed run reads on; validation on the way over the same steps each time."""

    def __init__(self, train: Batches, valid: Batches, validation_batches: int):
        super().__init__()
        self.train, self.valid = train, valid
        self.validation_steps = min(validation_batches, valid.epoch_steps())

    def _loader(self, batches: Batches, first: int, last: int | None) -> DataLoader:
        return DataLoader(Steps(batches, first, last, self.trainer.global_rank, self.trainer.world_size), batch_size=None)

    def train_dataloader(self) -> DataLoader:
        return self._loader(self.train, self.trainer.global_step, None)

    def val_dataloader(self) -> DataLoader:
        return self._loader(self.valid, 0, self.validation_steps)

    def whole_split(self) -> DataLoader:
        """All of the validation text, for the figures of a finished model."""
        return self._loader(self.valid, 0, self.valid.epoch_steps())
