"""Search for hyperparameters of fine-tuning."""

import difflib
from typing import Annotated, Literal

from pydantic import Field, ValidationError, create_model, field_validator, model_validator

from components.core.config import Block, Count, DrawnSeed, ModelName, Once, Positive, TaskName, named_combinations
from components.params.messages import first
from components.params.recipes import Recipe
from components.params.tasks import MetricName


class Draw(Block):
    """The values that a field of the recipe is drawn from: a range, uniformly, or a list of choices."""

    low: int | float | None = None
    """Lower bound of a range."""
    high: int | float | None = None
    """Both bounds are drawn too. Whole numbers for a field that is one (`epochs`)."""
    log: bool = False
    """Uniform in the logarithm: as many draws between 1e-4 and 1e-3 as between 1e-3 and 1e-2."""
    choices: list[bool | int | float | str | None] | None = None
    """In place of a range: the values to draw from, each as often."""

    @model_validator(mode="after")
    def range_or_choices(self):
        bounds = [bound for bound in (self.low, self.high) if bound is not None]
        if len(bounds) != (2 if self.choices is None else 0):
            raise ValueError("give either low and high, or choices")
        if self.choices is not None and (self.log or not self.choices or len(set(map(repr, self.choices))) < len(self.choices)):
            raise ValueError("choices are one or more different values, without log")
        if self.choices is None and self.low >= self.high:
            raise ValueError(f"low {self.low} is not below high {self.high}")
        if self.log and self.low <= 0:
            raise ValueError(f"log needs a low above 0, not {self.low}")
        return self

    @property
    def ends(self) -> list:
        """The smallest and the largest value, or all values of a list."""
        return [self.low, self.high] if self.choices is None else self.choices


class Pruner(Block):
    """Whether a trial that looks bad on dev is stopped after an epoch, through `optuna`."""

    name: Literal["none", "successive_halving", "hyperband"] = "none"
    """Successive halving as Li et al. 2020 do it without waiting (ASHA);
    Hyperband (Li et al. 2018): several of them, which begin later and later."""
    min_epochs: Count = 1
    """No trial is stopped before. Rungs are at min_epochs, times reduction_factor, times reduction_factor ..."""
    reduction_factor: Annotated[int, Field(ge=2)] = 2
    """At a rung the best of so many goes on."""

    @model_validator(mode="after")
    def rungs_are_climbed(self):
        if self.name == "none":
            self.refuse_idle(["min_epochs", "reduction_factor"], "name: none stops no trial")
        return self


class SearchBudget(Block):
    """How long the search of one model on one task runs; where both are given, the one that is spent first ends it."""

    trials: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Trainings."""
    hours: Positive | None = None
    """Wall clock of its trials; the one that crosses the line is finished."""

    @model_validator(mode="after")
    def at_least_one(self):
        if self.trials is None and self.hours is None:
            raise ValueError("give trials, hours or both")
        return self


class Search(Block):
    """Every model on every task, fine-tuned with recipes drawn at random, to compare models at a budget of tuning (Dodge et al. 2019).

    A trial is `finetune.recipes.<model>` with newly drawn fields of `space`, and its own seed.
    """

    models: Annotated[list[ModelName], Once] = []
    """Names of `finetune.models`."""
    tasks: Annotated[list[TaskName], Once] = []
    """Names of `tasks`."""
    inits: Annotated[list[Literal["pretrained", "random"]], Field(min_length=1), Once] = ["pretrained"]
    """From the model's weights, or from random ones of the same architecture, or from both: is it the pre-training or the architecture?"""
    sampler: Literal["random", "tpe"] = "random"
    """Only of random search, with nothing pruned, is there an expected validation performance."""
    pruner: Pruner = Pruner()
    """Whether trials that look bad are stopped early."""
    budget: SearchBudget = SearchBudget(trials=20)
    """How long each search runs."""
    seed: DrawnSeed
    """Trial n has the same draws and seed for every model, task and start."""
    metric: MetricName | None = None
    """On dev; null: the task's headline."""
    train_examples: Count | None = None
    """Labelled examples used, a seeded subset; null takes all. Dev is `finetune.eval_examples`."""
    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.95
    """The probability that a band holds a model's whole curve."""
    space: dict[str, Draw] = {}
    """Field of the recipe -> what it is drawn from. A fixed value is a choice of one."""

    @property
    def runs(self) -> dict[str, tuple[str, str, str]]:
        """Name of a search -> its model, task and start."""
        return named_combinations(self.models, self.tasks, self.inits)

    @field_validator("space")
    @classmethod
    def fields_of_a_recipe(cls, space: dict[str, Draw]) -> dict[str, Draw]:
        """Every value that may be drawn is one that a recipe takes, and as it takes it: `1.0` epochs are 1."""
        taken = {}
        for key, draw in space.items():
            if key not in Recipe.model_fields:
                close = difflib.get_close_matches(key, Recipe.model_fields, n=1)
                hint = f"did you mean {close[0]}?" if close else f"there are: {', '.join(Recipe.model_fields)}"
                raise ValueError(f"{key} is not a field of a recipe ({hint})")
            if draw.choices is None and Recipe.model_fields[key].annotation not in (int, float):
                raise ValueError(f"{key} is not a single number: give its choices")
            field, ends = Recipe.model_fields[key], []
            # by itself: what it needs beside it, `fits` asks of the recipes that it is for
            alone = create_model("Field", __base__=Block, **{key: (field.annotation, field)})
            for value in draw.ends:
                try:
                    ends.append(getattr(alone(**{key: value}), key))
                except ValidationError as error:
                    said = first(error).lstrip(".: ").removeprefix(f"{key}: ")
                    raise ValueError(f"{key}: {said} (it is {value!r})") from None
            if draw.choices is not None and len(set(map(repr, ends))) < len(ends):
                raise ValueError(
                    f"{key}: choices {draw.choices} mean {ends} in a recipe, with one of them twice; leave it out"
                )
            taken[key] = draw if draw.choices is None else draw.model_copy(update={"choices": ends})
        return taken

    @model_validator(mode="after")
    def draws_something(self):
        if self.models and not self.space:
            raise ValueError("space is empty; name a field of the recipe and the values that are tried")
        return self

    def longest(self, recipe: Recipe) -> int:
        """The most epochs that a trial on this recipe can have."""
        return max(self.space["epochs"].ends) if "epochs" in self.space else recipe.epochs
