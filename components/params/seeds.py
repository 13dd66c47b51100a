"""Seeds as a choice: every initialisation with every order of the examples. The section is in `studies/params.yaml`."""

from itertools import product
from typing import Annotated, Literal

from pydantic import Field

from components.core.config import Block, Count, ModelName, Once, Seed, Share, TaskName, named_combinations

Seeds = Annotated[list[Seed], Field(min_length=2, max_length=100), Once]


class SeedGrid(Block):
    """Models fine-tuned by their recipe of `finetune`, with each of some initialisations in each of some orders (Dodge et al. 2020)."""

    models: Annotated[list[ModelName], Once] = []
    """Names of `finetune.models`."""
    tasks: Annotated[list[TaskName], Once] = []
    """Names of `tasks` whose test split is labelled."""
    init: Literal["pretrained", "random"] = "pretrained"
    """From the model's weights, or from random ones, which are then of the initialisation, too."""
    initialisations: Seeds = [1, 2, 3, 4, 5, 6, 7, 8]
    """Seeds of the weights that are not pre-trained, and of dropout."""
    orders: Seeds = [1, 2, 3, 4, 5, 6, 7, 8]
    """Seeds of the order in which training examples come."""
    train_examples: Count | None = None
    """Labelled examples used, a seeded subset, the same for all; null takes all."""
    keep: Annotated[Share, Field(gt=0, lt=1)] = 0.3
    """The share of the trainings that is trained to its end; those that look bad on dev are stopped."""

    @property
    def runs(self) -> dict[str, tuple[str, str, int]]:
        """Name of a stage -> its model, task and initialisation."""
        return named_combinations(self.models, self.tasks, self.initialisations)

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Model and task of each grid."""
        return list(product(self.models, self.tasks))
