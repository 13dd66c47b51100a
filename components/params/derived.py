"""Models made of models."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from components.block import Block, Count, Name, Seed
from components.params.models import Training
from components.params.tasks import Recipe


class Tuned(Block):
    """All weights tuned on one task before the model meets others (Phang et al. 2018)."""

    name: Literal["tuned"]
    train_examples: Count | None = None
    """Labelled examples used, a seeded subset; null takes all."""
    seed: Seed = 1
    recipe: Recipe

    @model_validator(mode="after")
    def all_weights(self):
        if self.recipe.method != "full":
            raise ValueError(f"what goes on to other tasks has all its weights tuned: method full, not {self.recipe.method}")
        return self


class Pretrained(Training):
    """Pre-trained on: on text of a domain or of a task (Gururangan et al. 2020), or ULMFiT's second step (Howard and Ruder 2018)."""

    name: Literal["pretrained"]


ON = {"tuned": "tasks", "pretrained": "encoded"}
"""Way to derive -> the folder of data/ with what it is done on."""


class Derived(Block):
    """A model made of another one: `data/models/<name>`, to be named wherever a model is."""

    start: Name
    """Of `models`, `checkpoints`, `derived`."""
    on: Annotated[str, Field(pattern=r"^(tasks|encoded)/[a-z][a-z0-9_]*$")]
    """`tasks/<task>` or `encoded/<encoding>`, as under data/."""
    by: Annotated[Tuned | Pretrained, Field(discriminator="name")]

    @model_validator(mode="after")
    def on_what_it_needs(self):
        if self.on.partition("/")[0] != (folder := ON[self.by.name]):
            raise ValueError(f"by {self.by.name} needs on: {folder}/..., not {self.on}")
        return self
