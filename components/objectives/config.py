"""Base of the settings of all objectives, without torch."""

from typing import ClassVar, Self

from components.core.config import Block
from components.models.common.config import ArchitectureBlock, Reads


class ObjectiveBlock(Block):
    """Settings of an objective."""

    trains: ClassVar[tuple[Reads, ...]]
    """How a model may read to be trained by it."""
    continues: ClassVar[bool] = False
    """Whether a row goes on where that of the step before has ended, so that all batches are of one size."""
    compares_rows: ClassVar[bool] = False
    """Whether the rows of a batch are compared with each other, so that it can't be cut into micro-batches."""
    own_loss: ClassVar[bool] = False
    """Whether its loss compares with no other objective's, however a model reads."""
    counted_rows: ClassVar[int | None] = 8
    """Rows that FLOPs are counted on; None: whole batches, where what a row takes depends on how many others there are."""
    shares_weights: ClassVar[bool] = False
    """Whether networks of its own have weights of the model among theirs."""
    samples_title: ClassVar[str]
    """What its samples are, for the report."""

    name: str

    def check_reader(self, architecture: ArchitectureBlock) -> None:
        """Raises ValueError where it can't train such a model."""
        if architecture.reads not in self.trains:
            raise ValueError(f"objective {self.name} can't train architecture {architecture.name}")

    def check_prompt(self, prompt: str) -> None:
        """Raises ValueError for a prompt that no sample can be made of."""

    def sentinels(self, max_length: int) -> int:
        """Ids at the end of the vocabulary that it puts in the place of text, for a model that reads `max_length`."""
        return 0

    def row_length(self, max_length: int) -> int:
        """Tokens of a row of a batch, for a model that reads `max_length`."""
        return max_length

    def with_rows_of(self, length: int) -> Self:
        """The same with rows of so many tokens, for counting FLOPs on short ones."""
        return self
