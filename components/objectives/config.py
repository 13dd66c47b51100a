"""Base class of the settings of objectives, without torch."""

from typing import ClassVar, Self

from components.core.config import Block
from components.models.common.config import ArchitectureBlock, Reads


def quoted(prompt: str) -> str:
    """A prompt as messages have it, cut where it is long."""
    return f"{prompt[:60]!r}{'...' * (len(prompt) > 60)}"


def check_has_gap(prompt: str) -> None:
    """Raise ValueError for a prompt that a model which fills masks has nothing to do with."""
    if "[MASK]" not in prompt:
        raise ValueError(f"prompt {quoted(prompt)} has no [MASK]; mark the place to fill with [MASK]")


class ObjectiveBlock(Block):
    """Settings of an objective."""

    trains: ClassVar[tuple[Reads, ...]]
    """The kinds of context of the models that it can train."""
    continues: ClassVar[bool] = False
    """Whether a sequence continues that of the previous step, so that all batches must have the same size."""
    contrastive: ClassVar[bool] = False
    """Whether the sequences of a batch are compared with each other, so that it can't be split into micro-batches."""
    incomparable_loss: ClassVar[bool] = False
    """Whether its loss can't be compared with that of other objectives, whatever context the models see."""
    flops_batch_size: ClassVar[int | None] = 8
    """Sequences that FLOPs are counted on; None: a full batch, where the FLOPs per sequence depend on the batch size."""
    reads_layers: ClassVar[bool] = False
    """Whether it reads the model's layers by themselves, past `forward`, which `trainer.compile` compiles."""
    shares_weights: ClassVar[bool] = False
    """Whether its auxiliary networks share weights with the model."""
    samples_title: ClassVar[str]
    """Title of its samples in the report."""

    name: str

    def check_reader(self, architecture: ArchitectureBlock) -> None:
        """Raise ValueError if it can't train this architecture."""
        if architecture.reads not in self.trains:
            raise ValueError(f"objective {self.name} can't train architecture {architecture.name}")

    def check_prompt(self, prompt: str) -> None:
        """Raise ValueError for a prompt that no sample can be generated from."""

    def sentinels(self, max_length: int) -> int:
        """Return the number of sentinel ids that it uses at the end of the vocabulary, for a model that reads `max_length`."""
        return 0

    def row_length(self, max_length: int) -> int:
        """Return the tokens of a sequence in a batch, for a model that reads `max_length`."""
        return max_length

    def with_row_length(self, length: int) -> Self:
        """Return the settings with sequences of this length, to count FLOPs on short ones."""
        return self
