"""Lottery tickets: how few of a model's weights are enough, if they are the right ones. The section is in
`studies/params.yaml`."""

from itertools import product
from typing import Annotated

from pydantic import Field

from components.core.config import Block, Count, ModelName, Once, Seed, Share, TaskName, named_combinations


class Tickets(Block):
    """Models tuned by their recipe of `finetune` (method `full`), pruned by magnitude a share at a time and rewound to where they began
    (Frankle and Carbin 2019; of BERT Chen et al. 2020, Prasanna et al. 2020)."""

    models: Annotated[list[ModelName], Once] = []
    """Names of `finetune.models`."""
    tasks: Annotated[list[TaskName], Once] = []
    """Names of `tasks`."""
    seeds: Annotated[list[Seed], Field(min_length=2), Once] = [1, 2, 3]
    """Seeds of the head, the order of the examples and the random draws."""
    rounds: Annotated[Count, Field(le=40)] = 6
    """How often weights are taken out and the rest is trained again."""
    prune: Annotated[Share, Field(gt=0, lt=1)] = 0.3
    """The share of the remaining weights of the layers' matrices that is removed in each round."""
    train_examples: Count | None = None
    """Labelled examples used; null takes all."""

    @property
    def runs(self) -> dict[str, tuple[str, str, int]]:
        """Name of a stage -> its model, task and seed."""
        return named_combinations(self.models, self.tasks, self.seeds)

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Model and task of each."""
        return list(product(self.models, self.tasks))
