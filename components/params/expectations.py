"""What a study expects of a comparison, and the paper that found it elsewhere."""

from typing import Literal

from components.core.config import Block, Name, Positive, RowName


class Paper(Block):
    """A published effect. It may be expected to come out otherwise at a small budget."""

    source: str
    """Who found it, and where: `Liu et al. 2019, table 2`."""
    found: str
    """The figures there: `MNLI 84.7 without, 84.0 with`."""
    direction: Literal["higher", "lower", "same"]
    """What it means for the figure that is compared here; `same`: there was no difference."""


class Expectation(Block):
    """An expectation about a comparison, written before it is made. Its page says which commit fixed it, and what came
    out."""

    variant: RowName
    """The variant that the expectation is about."""
    against: RowName | None = None
    """Another variant, of a pair in `contrasts`; null: the base."""
    task: Name
    """A task or an evaluation of the study, or `bits_per_byte`: the held-out loss of the pre-training."""
    direction: Literal["higher", "lower"]
    """Whether the variant's score is expected to be higher or lower than that of `against`."""
    matters: Positive
    """The smallest difference that would matter, in the task's metric: an interval that excludes it is an answer, too."""
    because: str | None = None
    """Why it is expected. For the page."""
    paper: Paper | None = None
    """A published effect that this comparison can reproduce, for the page of findings."""
