"""Models made of models."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from components.block import Added, Block, Count, Name, Seed
from components.params.models import Training
from components.params.tasks import Recipe


class OnTasks(Block):
    """All weights tuned before the model meets other tasks."""

    name: str
    train_examples: Count | None = None
    """Labelled examples used of each task, a seeded subset; null takes all."""
    seed: Seed = 1
    recipe: Recipe

    @model_validator(mode="after")
    def all_weights(self):
        if self.recipe.method not in ("full", "text_to_text"):
            raise ValueError(f"what goes on to other tasks has all weights tuned (full or text_to_text), not {self.recipe.method}")
        return self


class Tuned(OnTasks):
    """All weights tuned on one task before the model meets others (Phang et al. 2018)."""

    name: Literal["tuned"]


class MultiTask(OnTasks):
    """All weights tuned on several tasks at once, a head for each (Liu et al. 2019, multi-task deep neural networks); under `method:
    text_to_text` without heads, told by their prompts (Raffel et al. 2020, section 3.5.2)."""

    name: Literal["multitask"]
    tasks: Annotated[list[Name], Field(min_length=2)]
    sampling: Literal["proportional", "annealed", "uniform"] = "proportional"
    """Whose batch comes next: a task's share is its examples' (MT-DNN), the same for all, or goes from the first nearly to the second: the
    examples to the power 1 - 0.8 * (epoch - 1) / (epochs - 1) (Stickland and Murray 2019, section 4.1)."""
    cap: Annotated[Count | None, Added(neutral=None)] = None
    """`proportional`: no task's share is of more examples than so many (T5: 2^21)."""
    temperature: Annotated[Annotated[float, Field(ge=1)], Added(neutral=1.0)] = 1.0
    """`proportional`: shares are of the capped examples to the power 1 / temperature (T5 tried 2; multilingual BERT has 1.43)."""

    @model_validator(mode="after")
    def at_once(self):
        if self.recipe.patience is not None or self.recipe.gradual_unfreezing:
            raise ValueError("several tasks at once know no best epoch and no layer that waits: leave patience and gradual_unfreezing out")
        if self.sampling != "proportional" and (self.cap is not None or self.temperature != 1):
            raise ValueError(f"cap and temperature are of sampling: proportional, not {self.sampling}")
        if twice := [task for i, task in enumerate(self.tasks) if task in self.tasks[:i]]:
            raise ValueError(f"tasks has {twice[0]} twice")
        return self


class Pretrained(Training):
    """Pre-trained on: on text of a domain or of a task (Gururangan et al. 2020), or ULMFiT's second step (Howard and Ruder 2018)."""

    name: Literal["pretrained"]


ON = {"tuned": "tasks/<task>", "multitask": "tasks", "pretrained": "encoded/<encoding>"}
"""Way to derive -> what it is done on, in data/."""


class Derived(Block):
    """A model made of another one: `data/models/<name>`, to be named wherever a model is."""

    start: Name
    """Of `models`, `checkpoints`, `derived`."""
    on: Annotated[str, Field(pattern=r"^(tasks|(tasks|encoded)/[a-z][a-z0-9_]*)$")]
    """`tasks/<task>`, `tasks` (then `by` names them) or `encoded/<encoding>`, as under data/."""
    by: Annotated[Tuned | MultiTask | Pretrained, Field(discriminator="name")]

    @property
    def tasks(self) -> list[str]:
        """That it is tuned on."""
        return [self.on.partition("/")[2]] if self.by.name == "tuned" else self.by.tasks if self.by.name == "multitask" else []

    @model_validator(mode="after")
    def on_what_it_needs(self):
        folder, _, name = (needed := ON[self.by.name]).partition("/")
        if (self.on.partition("/")[0], bool(self.on.partition("/")[2])) != (folder, bool(name)):
            raise ValueError(f"by {self.by.name} needs on: {needed}, not {self.on}")
        return self
